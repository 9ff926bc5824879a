"""`ObjectStore`: a bucket on S3, Google Cloud Storage or Azure, by obstore.

Invariants:
- `put_if_absent` is exact (`store/conditional.py`). The nonce of a put is metadata of its object.
  A 409 counts as no answer: servers send it without an object.
- The client never repeats a request by itself: a repeated put would be refused because of its own
  first try. This room repeats, and so knows what it has sent, and counts it.
- Repeated requests are bounded by a few tries; then a StoreError says why. The engine waits and
  retries (`plan/decisions/transient.py`).
- Names are stored as they are, below the prefix of the URL. There are no directories.

It knows nothing of what lies under which name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.errors import StoreError
from headrace.store.client import refusals
from headrace.store.client.credentials import AwsSettings, aws_settings
from headrace.store.client.object_requests import ObjectRequests
from headrace.store.conditional import Unanswered, put_until_known
from headrace.store.counts import RequestCounts
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.store.url import StoreUrl, parse_url
from headrace.system import REAL, System

PARTS_FROM_BYTES = 64 << 20
"""Larger files are written in parts, seen only when complete."""
PART_BYTES = 16 << 20
PARTS_AT_ONCE = 4
PAGE = 1000
"""So many names are listed, or deleted, by one request."""
NONCE = "nonce"
"""The name of the metadata; Azure takes only letters, digits and underscores."""
PUT_TIMEOUTS = 2
"""After so many time-outs a put whose outcome is unknown is given up."""


class ObjectStore(Store):
    """The objects of a bucket below a prefix."""

    rewrite_interval_s = 1.1
    must_be_asked = True

    def __init__(self, url: str | StoreUrl, system: System = REAL) -> None:
        """Reads the environment and profile files; sends nothing."""
        given = parse_url(url) if isinstance(url, str) else url
        aws = aws_settings(given) if given.scheme == "s3" else AwsSettings()
        # Workers must reach the same server, whatever their own environment says.
        if given.scheme == "s3":
            given = given.having({"region": aws.region, "endpoint": aws.endpoint})
        elif given.scheme == "az":
            given = given.having({"account": os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")})
        self.url = given
        self.system = system
        self.location = given.location
        self._requests = ObjectRequests(given, aws, system)
        self._obstore = self._requests.obstore

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return (ObjectStore, (self.location,))

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"

    def requests(self) -> dict[str, RequestCounts]:
        return self._requests.counter.so_far()

    def where(self, name: str = "") -> str:
        return self.url.where(name)

    def location_below(self, prefix: str) -> str:
        return self.url.below(prefix).location

    def is_present(self) -> bool:
        """Whether the bucket exists."""
        self._requests.counter.list()
        try:
            self._obstore.list_with_delimiter(self._requests.client(), self.url.prefix or None)
        except self._requests.failures as error:
            refused = self._requests.refusal(error)
            if isinstance(error, FileNotFoundError) or refused.kind == refusals.BUCKET:
                return False
            raise self._requests.error("list", "", refused) from None
        return True

    # Writing --------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        key, size = self._key(name), len(data)
        if size <= PARTS_FROM_BYTES:
            self._requests.put(name, "write", size, lambda client: self._put(client, key, data))
            return
        how = {"chunk_size": PART_BYTES, "max_concurrency": PARTS_AT_ONCE, "use_multipart": True}
        self._requests.put(
            name,
            "write",
            size,
            lambda client: self._obstore.put(client, key, data, **how),
            requests=-(-size // PART_BYTES) + 2,
        )

    def put_if_absent(self, name: str, data: bytes) -> bool:
        key, nonce = self._key(name), self.system.token_hex(12)
        requests, errors = self._requests, self._obstore.exceptions
        began = self.system.uptime_s()
        in_doubt = False

        def put() -> bool:
            nonlocal in_doubt
            requests.counter.put(len(data))
            try:
                self._put(requests.client(), key, data, mode="create", attributes={NONCE: nonce})
            except (errors.AlreadyExistsError, errors.PreconditionError):
                return False
            except requests.failures as error:
                refused = requests.refusal(error)
                if not refused.passing:
                    raise requests.error("write", name, refused) from None
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

    def _put(self, client: Any, key: str, data: bytes, **how: Any) -> None:
        self._obstore.put(client, key, data, use_multipart=False, **how)

    def _nonce_of(self, name: str, key: str) -> str | None:
        """The nonce of an object, "" if it has none; None if there is no object."""
        requests = self._requests
        requests.counter.get()
        try:
            found = self._obstore.get(requests.client(), key, options={"head": True}).attributes
        except FileNotFoundError:
            return None
        except requests.failures as error:
            refused = requests.refusal(error)
            if not refused.passing:
                raise requests.error("look at", name, refused) from None
            raise Unanswered(refused.sentence) from None
        return str(found.get(NONCE, ""))

    def copy(self, old: str, new: str) -> None:
        source, target = self._key(old), self._key(new)
        if self.url.scheme == "az":
            # Azure may answer before its copy is complete.
            super().copy(old, new)
            return
        self._requests.put(
            old, "copy", 0, lambda client: self._obstore.copy(client, source, target)
        )

    def delete(self, name: str) -> None:
        self._delete(name, self._key(name))

    def delete_all(self, names: Iterable[str]) -> None:
        keys = [self._key(name) for name in names]
        for first in range(0, len(keys), PAGE):
            self._delete("", keys[first : first + PAGE])

    def _delete(self, name: str, keys: Any) -> None:
        def act(client: Any) -> None:
            self._requests.counter.delete()
            self._obstore.delete(client, keys)

        try:
            self._requests.tried(name, "delete", act)
        except FileNotFoundError:
            if isinstance(keys, str):
                return
            # A server that reports a missing file does not say which others it has deleted.
            for key in keys:
                self._delete(self._name(key), key)

    # Reading --------------------------------------------------------------

    def read(self, name: str) -> bytes:
        return bytes(self._get(name))

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self._get(name))

    def _get(self, name: str) -> Any:
        key = self._key(name)
        return self._requests.get(
            name, "read", lambda client: self._obstore.get(client, key).bytes(), len
        )

    def stat(self, name: str) -> ObjectInfo:
        key = self._key(name)
        found = self._requests.get(name, "look at", lambda client: self._obstore.head(client, key))
        return _info(name, found)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        key, how = self._key(name), {"start": start, "end": end}
        if start < end:
            try:
                found = self._requests.get(
                    name, "read", lambda client: self._obstore.get_range(client, key, **how), len
                )
                return bytes(found)
            except StoreError:
                # Servers refuse a range that begins behind the end.
                if start < self.stat(name).size:
                    raise
        self.stat(name)
        return b""

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
            if meta["last_modified"].timestamp() < until
        ]
        self.delete_all(f"{directory}/{name}" if directory else name for name in old)
        return len(old)

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        prefix = self._key(directory) if directory else self.url.prefix
        pages = _Pages(self._requests, prefix, self._key(after) if after else None)
        while page := self._requests.tried(directory, "list", pages.next):
            for meta in page:
                name = self._name(meta["path"])
                if not any(part.startswith(".") for part in name.split("/")):
                    yield _info(name, meta)
            yield None

    def _listed(self, directory: str) -> Any:
        prefix = self._key(directory) if directory else self.url.prefix
        return self._requests.tried(directory, "list", partial(self._list, prefix))

    def _list(self, prefix: str, client: Any) -> Any:
        found = self._obstore.list_with_delimiter(client, prefix or None)
        self._requests.counter.list(len(found["objects"]) + len(found["common_prefixes"]), PAGE)
        return found

    def _key(self, name: str) -> str:
        checked = checked_name(name)
        return f"{self.url.prefix}/{checked}" if self.url.prefix else checked

    def _name(self, key: str) -> str:
        return key[len(self.url.prefix) + 1 :] if self.url.prefix else key


class _Pages:
    """A long listing, page by page; after an error it goes on behind the last page."""

    def __init__(self, requests: ObjectRequests, prefix: str, after: str | None) -> None:
        self._requests = requests
        self._prefix = prefix
        self._after = after
        self._stream: Any = None

    def next(self, client: Any) -> Any:
        """The next page; an empty one at the end."""
        if self._stream is None:
            self._stream = self._requests.obstore.list(
                client, self._prefix or None, offset=self._after, chunk_size=PAGE
            )
        self._requests.counter.list()
        try:
            page: Any = next(iter(self._stream), [])
        except Exception:
            self._stream = None
            raise
        if page:
            self._after = max(meta["path"] for meta in page)
        return page


def _info(name: str, meta: Any) -> ObjectInfo:
    # Azure puts its etags into quotes, but not in listings.
    version = meta["e_tag"] or str(meta["last_modified"])
    return ObjectInfo(name, meta["size"], version.strip('"'))


def _last(meta: Any) -> str:
    return str(meta["path"]).rpartition("/")[2]
