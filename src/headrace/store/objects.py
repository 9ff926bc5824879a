"""`ObjectStore`: a bucket on S3, Google Cloud Storage or Azure, by obstore.

Invariants:
- `put_if_absent` is exact (`store/conditional.py`). The nonce of a put is metadata of its object.
  A 409 counts as no answer: servers send it without an object.
- The client never repeats a request by itself: a repeated put would be refused because of its own
  first try. This module repeats, and so knows what it has sent, and counts it.
- Repeated requests are bounded by a few tries; then a StoreError says why. The engine waits and
  retries (`plan/decisions/transient.py`).
- Names are stored as they are, below the prefix of the URL. There are no directories.

It knows nothing of what lies under which name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from headrace.errors import StoreError
from headrace.store.client import refusals
from headrace.store.client.credentials import AwsSettings, aws_settings
from headrace.store.client.forks import before_use
from headrace.store.client.objects_client import new_client, obstore_package
from headrace.store.client.refusals import RefusedRequest, refusal_of
from headrace.store.conditional import Unanswered, put_until_known
from headrace.store.counts import RequestCounter, RequestCounts
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.store.url import StoreUrl, parse_url
from headrace.system import REAL, System

PARTS_FROM_BYTES = 64 << 20
"""Larger files are written in parts, seen only when complete."""
PART_BYTES = 16 << 20
PARTS_AT_ONCE = 4
PAGE = DELETES_AT_ONCE = 1000
"""So many names are listed, or deleted, by one request."""
NONCE = "nonce"
"""The name of the metadata; Azure takes only letters, digits and underscores."""
TRIES = 3
PUT_TIMEOUTS = 2
"""After so many time-outs a put whose outcome is unknown is given up."""
PAUSE_S = 0.1
"""The first pause before a retry; it doubles."""

_Given = TypeVar("_Given")


class ObjectStore(Store):
    """The objects of a bucket below a prefix."""

    rewrite_interval_s = 1.1
    must_be_asked = True

    def __init__(self, url: str | StoreUrl, system: System = REAL) -> None:
        """Reads the environment and profile files; sends nothing."""
        given = parse_url(url) if isinstance(url, str) else url
        self._obstore = obstore_package(given.scheme)
        self._aws = aws_settings(given) if given.scheme == "s3" else AwsSettings()
        # Workers must reach the same server, whatever their own environment says.
        if given.scheme == "s3":
            given = given.having({"region": self._aws.region, "endpoint": self._aws.endpoint})
        elif given.scheme == "az":
            given = given.having({"account": os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")})
        self.url = given
        self.system = system
        self.location = given.location
        self._client: Any = None
        self._lock = threading.Lock()
        self._counter = RequestCounter()

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return (ObjectStore, (self.location,))

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    def requests(self) -> dict[str, RequestCounts]:
        return self._counter.so_far()

    def where(self, name: str = "") -> str:
        return self.url.where(name)

    def location_below(self, prefix: str) -> str:
        return self.url.below(prefix).location

    def is_present(self) -> bool:
        """Whether the bucket exists."""
        try:
            self._counter.list()
            self._obstore.list_with_delimiter(self._open(), self.url.prefix or None)
        except (OSError, self._obstore.exceptions.BaseError) as error:
            refused = self._refusal(error)
            if isinstance(error, FileNotFoundError) or refused.kind == refusals.BUCKET:
                return False
            raise self._error("list", "", refused) from None
        return True

    # Files ----------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        key = self._key(name)
        if len(data) <= PARTS_FROM_BYTES:
            self._counted_put(name, "write", len(data), lambda c: self._put(c, key, data))
            return
        parts = -(-len(data) // PART_BYTES) + 2
        self._counted_put(
            name,
            "write",
            len(data),
            lambda client: self._obstore.put(
                client,
                key,
                data,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            ),
            requests=parts,
        )

    def put_if_absent(self, name: str, data: bytes) -> bool:
        key, nonce = self._key(name), self.system.token_hex(12)
        errors = self._obstore.exceptions
        began = self.system.uptime_s()
        in_doubt = False

        def put() -> bool:
            nonlocal in_doubt
            self._counter.put(len(data))
            try:
                self._put(self._open(), key, data, mode="create", attributes={NONCE: nonce})
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
            except (OSError, errors.BaseError) as error:
                refused = self._refusal(error)
                if not refused.passing:
                    raise self._error("write", name, refused) from None
                in_doubt = in_doubt or not refused.certain
                raise Unanswered(refused.sentence) from None
            return True

        def look() -> bool | None:
            found = self._nonce_of(name, key)
            if found is None:
                return None
            if found or not in_doubt:
                return found == nonce
            # The server has dropped the metadata. Only the bytes can tell.
            return self.read(name) == data

        def pause(seconds: float) -> None:
            if self.system.uptime_s() - began > PUT_TIMEOUTS * self.url.timeout_s:
                raise StoreError(
                    f"cannot write {self.where(name)}: the server does not answer; whether it was "
                    "written is not known"
                )
            self.system.sleep(seconds * (0.5 + self.system.random()))

        return put_until_known(self.where(name), put, look, pause)

    def _nonce_of(self, name: str, key: str) -> str | None:
        """The nonce of an object, "" if it has none; None if there is no object."""
        self._counter.get()
        try:
            found = self._obstore.get(self._open(), key, options={"head": True}).attributes
        except FileNotFoundError:
            return None
        except (OSError, self._obstore.exceptions.BaseError) as error:
            refused = self._refusal(error)
            if not refused.passing:
                raise self._error("look at", name, refused) from None
            raise Unanswered(refused.sentence) from None
        return str(found.get(NONCE, ""))

    def read(self, name: str) -> bytes:
        return bytes(self._get(name))

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self._get(name))

    def _get(self, name: str) -> Any:
        key = self._key(name)
        return self._counted_get(
            name, "read", lambda client: self._obstore.get(client, key).bytes(), len
        )

    def stat(self, name: str) -> ObjectInfo:
        key = self._key(name)
        found = self._counted_get(
            name, "look at", lambda client: self._obstore.head(client, key), lambda meta: 0
        )
        return _info(name, found)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        key = self._key(name)

        def act(client: Any) -> Any:
            return self._obstore.get_range(client, key, start=start, end=end)

        if start < end:
            try:
                return bytes(self._counted_get(name, "read", act, len))
            except StoreError:
                # Servers refuse a range that begins behind the end.
                if start < self.stat(name).size:
                    raise
        self.stat(name)
        return b""

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        prefix = self._key(directory) if directory else self.url.prefix
        offset = self._key(after) if after else None
        while True:
            page = self._tried(directory, "list", partial(self._page, prefix, offset))
            for meta in page:
                name = self._name(meta["path"])
                if not any(part.startswith(".") for part in name.split("/")):
                    yield _info(name, meta)
            if len(page) < PAGE:
                return
            offset = page[-1]["path"]
            yield None

    def _page(self, prefix: str, offset: str | None, client: Any) -> Any:
        self._counter.list()
        found = self._obstore.list(client, prefix or None, offset=offset, chunk_size=PAGE)
        return next(iter(found), [])

    def delete_all(self, names: Iterable[str]) -> None:
        keys = [self._key(name) for name in names]

        def act(some: Sequence[str], client: Any) -> None:
            self._counter.delete()
            self._obstore.delete(client, some)

        for first in range(0, len(keys), DELETES_AT_ONCE):
            some = keys[first : first + DELETES_AT_ONCE]
            try:
                self._tried("", "delete files of", partial(act, some))
            except FileNotFoundError:
                # A server that names missing files does not say which others it has deleted.
                for key in some:
                    self._deleted(key)

    def delete(self, name: str) -> None:
        self._deleted(self._key(name))

    def _deleted(self, key: str) -> None:
        def act(client: Any) -> None:
            self._counter.delete()
            self._obstore.delete(client, key)

        try:
            self._tried(self._name(key), "delete", act)
        except FileNotFoundError:
            pass

    def copy(self, old: str, new: str) -> None:
        source, target = self._key(old), self._key(new)
        if self.url.scheme == "az":
            # Azure may answer before its copy is complete.
            super().copy(old, new)
            return
        try:
            self._counted_put(
                old, "copy", 0, lambda client: self._obstore.copy(client, source, target)
            )
        except FileNotFoundError:
            raise FileNotFoundError(self.where(old)) from None

    # Names ----------------------------------------------------------------

    def list(self, directory: str) -> list[str]:
        found = self._listed(directory)
        below = [path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]]
        names = {*below, *(_last(meta) for meta in found["objects"])}
        return sorted(name for name in names if not name.startswith("."))

    def sweep(self, directory: str, older_than_s: float) -> int:
        until = self.system.wall_s() - older_than_s
        old = [
            name
            for meta in self._listed(directory)["objects"]
            if (name := _last(meta)).startswith(".") and name.endswith(".tmp")
            # Servers keep whole seconds.
            if meta["last_modified"].timestamp() < until
        ]
        for name in old:
            self.delete(f"{directory}/{name}" if directory else name)
        return len(old)

    def _listed(self, directory: str) -> Any:
        prefix = self._key(directory) if directory else self.url.prefix

        def act(client: Any) -> Any:
            found = self._obstore.list_with_delimiter(client, prefix or None)
            self._counter.list(len(found["objects"]) + len(found["common_prefixes"]))
            return found

        return self._tried(directory, "list", act)

    def _key(self, name: str) -> str:
        checked = checked_name(name)
        return f"{self.url.prefix}/{checked}" if self.url.prefix else checked

    def _name(self, key: str) -> str:
        return key[len(self.url.prefix) + 1 :] if self.url.prefix else key

    # Requests -------------------------------------------------------------

    def _put(self, client: Any, key: str, data: bytes, **how: Any) -> None:
        self._obstore.put(client, key, data, use_multipart=False, **how)

    def _counted_put(
        self, name: str, action: str, size: int, act: Callable[[Any], Any], requests: int = 1
    ) -> None:
        def counted(client: Any) -> None:
            self._counter.put(size, requests)
            act(client)

        self._tried(name, action, counted)

    def _counted_get(
        self,
        name: str,
        action: str,
        act: Callable[[Any], _Given],
        size: Callable[[_Given], int],
    ) -> _Given:
        def counted(client: Any) -> _Given:
            try:
                found = act(client)
            except Exception:
                self._counter.get()
                raise
            self._counter.get(size(found))
            return found

        return self._tried(name, action, counted)

    def _tried(self, name: str, action: str, act: Callable[[Any], _Given]) -> _Given:
        """The result of a request that may be repeated, after a few tries at most."""
        for attempt in range(1, TRIES + 1):
            try:
                return act(self._open())
            except (OSError, self._obstore.exceptions.BaseError) as error:
                refused = self._refusal(error)
                if isinstance(error, FileNotFoundError) and refused.kind != refusals.BUCKET:
                    if action == "write":  # Only a whole bucket can be missing then.
                        raise self._error(action, name, self._no_bucket()) from None
                    raise FileNotFoundError(self.where(name)) from None
                if not refused.passing or attempt == TRIES:
                    raise self._error(action, name, refused) from None
            self._pause(attempt)
        raise StoreError(f"cannot {action} {self.where(name)}")

    def _pause(self, attempt: int) -> None:
        self.system.sleep(PAUSE_S * 2 ** (attempt - 1) * (0.5 + self.system.random()))

    def _refusal(self, error: BaseException) -> RefusedRequest:
        if isinstance(error, self._obstore.exceptions.NotSupportedError):
            return RefusedRequest(refusals.OTHER, "the server cannot do that", False, certain=True)
        return refusal_of(error, self.url)

    def _no_bucket(self) -> RefusedRequest:
        return refusal_of(Exception("<Code>NoSuchBucket</Code>"), self.url)

    def _error(self, action: str, name: str, refused: RefusedRequest) -> StoreError:
        return StoreError(f"cannot {action} {self.where(name)}: {refused.sentence}")

    # The client -----------------------------------------------------------

    def _open(self) -> Any:
        before_use(self.url.scheme)
        client = self._client
        if client is None:
            with self._lock:
                client = self._client = self._client or new_client(self.url, self._aws)
        return client


def _info(name: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(name, meta["size"], meta["e_tag"] or str(meta["last_modified"]))


def _last(meta: Any) -> str:
    return str(meta["path"]).rpartition("/")[2]
