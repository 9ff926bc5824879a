"""Requests to a bucket: repeated a few times if that may help, counted, refused with sentences.

A request that is repeated here must have the same effect however often it is carried out.
Conditional puts are not: `store/objects.py` sends those once, and looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.errors import StoreError
from headrace.store.client import refusals
from headrace.store.client.credentials import AwsSettings
from headrace.store.client.forks import before_use
from headrace.store.client.objects_client import new_client, obstore_package
from headrace.store.client.refusals import RefusedRequest, refusal_of
from headrace.store.counts import RequestCounter
from headrace.store.url import StoreUrl
from headrace.system import System

TRIES = 3
PAUSE_S = 0.1
"""The first pause before a retry; it doubles."""

_Given = TypeVar("_Given")


class ObjectRequests:
    """Sends requests to the bucket of a URL. Threads may share it."""

    def __init__(self, url: StoreUrl, aws: AwsSettings, system: System) -> None:
        self.obstore = obstore_package(url.scheme)
        self.counter = RequestCounter()
        self.failures = (OSError, self.obstore.exceptions.BaseError)
        """What the client raises."""
        self._url = url
        self._aws = aws
        self._system = system
        self._client: Any = None
        self._lock = threading.Lock()

    def client(self) -> Any:
        """The client, made at its first use."""
        before_use(self._url.scheme)
        found = self._client
        if found is None:
            with self._lock:
                found = self._client = self._client or new_client(self._url, self._aws)
        return found

    def put(
        self, name: str, action: str, size: int, act: Callable[[Any], Any], requests: int = 1
    ) -> None:
        """Sends bytes to the store."""

        def counted(client: Any) -> None:
            self.counter.put(size, requests)
            act(client)

        self.tried(name, action, counted)

    def get(
        self,
        name: str,
        action: str,
        act: Callable[[Any], _Given],
        size: Callable[[_Given], int] = lambda found: 0,
    ) -> _Given:
        """Gets something from the store; `size` tells how many bytes it has."""

        def counted(client: Any) -> _Given:
            try:
                found = act(client)
            except Exception:
                self.counter.get()
                raise
            self.counter.get(size(found))
            return found

        return self.tried(name, action, counted)

    def tried(self, name: str, action: str, act: Callable[[Any], _Given]) -> _Given:
        """The result of a request, after a few tries at most.

        FileNotFoundError if the name is free; StoreError for everything else.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return act(self.client())
            except self.failures as error:
                refused = self.refusal(error)
                if isinstance(error, FileNotFoundError) and refused.kind != refusals.BUCKET:
                    if action == "write":  # Only a whole bucket can be missing then.
                        refused = refusals.no_bucket(self._url)
                    else:
                        raise FileNotFoundError(self._url.where(name)) from None
                if not refused.passing or attempt >= TRIES:
                    raise self.error(action, name, refused) from None
            pause = PAUSE_S * 2 ** (attempt - 1)
            self._system.sleep(pause * (0.5 + self._system.random()))

    def refusal(self, error: BaseException) -> RefusedRequest:
        """What an error of the client means."""
        return refusal_of(error, self._url)

    def error(self, action: str, name: str, refused: RefusedRequest) -> StoreError:
        """Our error for a request that was refused."""
        return StoreError(f"cannot {action} {self._url.where(name)}: {refused.sentence}")
