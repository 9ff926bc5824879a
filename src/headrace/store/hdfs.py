"""`HdfsStore`: a directory of HDFS, by hdfs-native, without a JVM.

Invariants:
- A file of HDFS is visible while it is written. So a file is written aside, under a hidden name,
  closed, and renamed. `rename` without overwriting has exactly one winner.
- The name aside is random and belongs to one call. After an answer that is missing or doubtful,
  the file is looked for there: if it is still there, it was not renamed. So `put_if_absent` is
  exact, although the client repeats requests by itself when a name node fails over.
- What a killed writer left aside is hidden, until `sweep`.

`close` returns when the name node knows enough replicas. Whether their bytes have reached a disk
is a setting of the data nodes (`dfs.datanode.synconclose`).
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.errors import InvalidPipeline, StoreError
from headrace.store.client.refusals import cleaned
from headrace.store.counts import RequestCounter, RequestCounts
from headrace.store.store import ObjectInfo, Store, checked_name
from headrace.store.url import StoreUrl, parse_url
from headrace.system import REAL, System

RENAME_TRIES = 3
SLOWEST_BYTES_PER_S = 1 << 20
"""A slower transfer counts as hung."""
PAUSE_S = 0.1
"""The first pause before a retry; it doubles."""
PAGE = 1000
"""Names in one answer to a listing, by default."""


_FEW_RETRIES = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""By default the client would repeat a request for minutes; the engine waits and retries itself."""

_Given = TypeVar("_Given")


class HdfsStore(Store):
    """A directory of HDFS and what lies below it."""

    must_be_asked = True

    def __init__(self, url: str | StoreUrl, system: System = REAL) -> None:
        """Sends nothing."""
        self.url = parse_url(url) if isinstance(url, str) else url
        self._package = hdfs_package()
        self.system = system
        self.location = self.url.location
        self._client: Any = None
        self._process = 0
        """The process that made the client: a fork leaves its threads behind."""
        self._lock = threading.Lock()
        self._counter = RequestCounter()
        self._was_present = False

    def __reduce__(self) -> tuple[type[HdfsStore], tuple[str]]:
        return (HdfsStore, (self.location,))

    def __repr__(self) -> str:
        return f"HdfsStore({self.location!r})"

    def requests(self) -> dict[str, RequestCounts]:
        return self._counter.so_far()

    def where(self, name: str = "") -> str:
        return self.url.where(name)

    def location_below(self, prefix: str) -> str:
        return self.url.below(prefix).location

    def is_present(self) -> bool:
        with self._explained("look at", ""):
            return self._exists(self._path(""))

    # Files ----------------------------------------------------------------

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with self._explained("write", name):
            aside = self._written_aside(path, data)
            try:
                self._within(lambda client: client.rename(aside, path, overwrite=True))
            except Exception:
                self._remove(aside)
                raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._explained("write", name):
            aside = self._written_aside(path, data)
            try:
                return self._renamed(aside, path, data)
            finally:
                self._remove(aside)

    def _written_aside(self, path: str, data: bytes) -> str:
        directory, _, last = path.rpartition("/")
        aside = f"{directory}/.{last}.{self.system.token_hex(6)}.tmp"
        self._counter.put(len(data))
        options: dict[str, Any] = {"create_parent": False}
        if replication := self.url.option("replication"):
            options["replication"] = int(replication)

        def write(client: Any) -> None:
            with client.create(aside, self._package.WriteOptions(**options)) as file:
                if data:
                    file.write(data)

        try:
            self._within(write, len(data))
        except Exception:
            self._remove(aside)
            raise
        return aside

    def _renamed(self, aside: str, path: str, data: bytes) -> bool:
        """Whether the file has got the name; the outcome of every try is looked up."""
        for attempt in range(RENAME_TRIES):
            failure: Exception | None = None
            try:
                self._within(lambda client: client.rename(aside, path, overwrite=False))
                return True
            except FileExistsError:
                taken = True
            except Exception as error:
                taken, failure = False, error
            if not self._exists(aside):
                # Renamed, or swept away with a directory that others have removed.
                return self._contents(path) == data
            if taken:
                return False
            if not self._exists(path.rpartition("/")[0]):
                raise FileNotFoundError(path)
            if attempt + 1 == RENAME_TRIES and failure is not None:
                raise failure
            self.system.sleep(PAUSE_S * 2**attempt * (0.5 + self.system.random()))
        return False

    def read(self, name: str) -> bytes:
        path = self._path(name)
        with self._explained("read", name):
            data = self._contents(path)
        self._counter.get(len(data))
        self._was_present = True
        return data

    def _contents(self, path: str) -> bytes:
        size = int(self._within(lambda client: client.get_file_info(path)).length)
        return self._within(lambda client: bytes(client.read(path).read()), size)

    def stat(self, name: str) -> ObjectInfo:
        path = self._path(name)
        self._counter.get()
        with self._explained("look at", name):
            found = self._within(lambda client: client.get_file_info(path))
            if found.isdir:
                raise FileNotFoundError(name)
        return _info(name, found)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        path = self._path(name)

        def read(client: Any) -> bytes:
            file = client.read(path)
            until = min(end, len(file))
            return bytes(file.read_range(start, until - start)) if start < until else b""

        with self._explained("read", name):
            data = self._within(read, end - start)
        self._counter.get(len(data))
        return data

    def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
        root = self._path("").rstrip("/")
        for status in self._statuses(directory):
            name = str(status.path)[len(root) + 1 :]
            if name.rpartition("/")[2].startswith("."):
                continue
            if status.isdir:
                yield None
                yield from self.walk(name, after=after)
            elif name > after:
                yield _info(name, status)

    def delete(self, name: str) -> None:
        path = self._path(name)
        self._counter.delete()
        with self._explained("delete", name):
            self._remove(path, quietly=False)

    # Names ----------------------------------------------------------------

    def list(self, directory: str) -> list[str]:
        found = [name for name, _ in self._listed(directory)]
        return sorted(name for name in found if not name.startswith("."))

    def sweep(self, directory: str, older_than_s: float) -> int:
        until_ms = (self.system.wall_s() - older_than_s) * 1000
        old = [
            name
            for name, modified_ms in self._listed(directory)
            if name.startswith(".") and name.endswith(".tmp") and modified_ms < until_ms
        ]
        for name in old:
            self.delete(f"{directory}/{name}" if directory else name)
        return len(old)

    def _listed(self, directory: str) -> Sequence[tuple[str, int]]:
        return [
            (str(status.path).rstrip("/").rpartition("/")[2], int(status.modification_time))
            for status in self._statuses(directory)
        ]

    def _statuses(self, directory: str) -> Sequence[Any]:
        path = self._path(directory)
        try:
            with self._explained("list", directory):
                found = self._within(lambda client: [*client.list_status(path)])
        except FileNotFoundError:
            found = []
        self._counter.list(len(found), PAGE)
        return found

    def make_directory(self, name: str) -> None:
        if self._was_present and not self.is_present():
            raise StoreError(f"the directory {self.where()} has vanished")
        with self._explained("make the directory", name):
            path = self._path(name)
            self._within(lambda client: client.mkdirs(path, create_parent=True))
        self._was_present = True

    def remove_directory(self, name: str) -> None:
        self.sweep(name, older_than_s=-1.0)
        path = self._path(name)
        try:
            self._within(lambda client: client.delete(path, recursive=False))
        except Exception:
            pass  # Missing, or a zombie task is writing there: the next call retries.

    def retire_directory(self, name: str) -> bool:
        path, retired = self._path(name), self._path(f"{name}.gone")
        with self._explained("rename", name):
            # Remains of a crash would be in the way if a driver has made `name` again since.
            self._remove(retired, recursive=True)
            try:
                self._within(lambda client: client.rename(path, retired, overwrite=False))
            except FileNotFoundError:
                pass  # Already renamed before a crash.
            self._remove(retired, recursive=True)
        return True

    # Requests -------------------------------------------------------------

    def _path(self, name: str) -> str:
        parts = (self.url.prefix, checked_name(name) if name else "")
        return "/" + "/".join(part for part in parts if part)

    def _exists(self, path: str) -> bool:
        try:
            self._within(lambda client: client.get_file_info(path))
        except FileNotFoundError:
            return False
        return True

    def _remove(self, path: str, *, quietly: bool = True, recursive: bool = False) -> None:
        try:
            self._within(lambda client: client.delete(path, recursive=recursive))
        except FileNotFoundError:
            pass
        except Exception:
            if not quietly:
                raise

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        """Turns errors of the client into StoreError, but for a missing name."""
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(self.where(name)) from None
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(
                f"cannot {action} {self.where(name)}: {_sentence(error, self.url)}"
            ) from None

    def _within(self, act: Callable[[Any], _Given], size: int = 0) -> _Given:
        """The result of a request; TimeoutError if it takes too long: the client waits for ever."""
        seconds = self.url.timeout_s + size / SLOWEST_BYTES_PER_S
        return self.system.run_within(seconds, lambda: act(self._open()), lambda: None)

    def _open(self) -> Any:
        if self._client is None or self._process != os.getpid():
            with self._lock:
                if self._client is None or self._process != os.getpid():
                    self._client = self._package.Client(f"hdfs://{self.url.place}", _FEW_RETRIES)
                    self._process = os.getpid()
        return self._client


def _info(name: str, status: Any) -> ObjectInfo:
    return ObjectInfo(name, int(status.length), f"{status.modification_time}-{status.length}")


def hdfs_package() -> Any:
    """The module hdfs_native; InvalidPipeline if it is not installed."""
    try:
        return importlib.import_module("hdfs_native")
    except ImportError:
        raise InvalidPipeline(
            "hdfs:// needs the package hdfs-native, here and for the workers: "
            "pip install 'headrace[hdfs]'"
        ) from None


def _sentence(error: Exception, url: StoreUrl) -> str:
    text = cleaned(str(error))[:300]
    low = text.lower()
    if isinstance(error, TimeoutError):
        return f"the name node {url.place} or a data node did not answer in time"
    if isinstance(error, PermissionError) or "accesscontrol" in low or "permission denied" in low:
        user = os.environ.get("HADOOP_USER_NAME", "")
        who = f"the user {user!r}" if user else "this user (HADOOP_USER_NAME names another one)"
        return f"permission denied: {who} may not write there"
    if "no namenode hosts" in low:
        return (
            f"{url.place} is not known: write host:port of the name node, or set HADOOP_CONF_DIR "
            "to the directory of an hdfs-site.xml that describes it"
        )
    if "connection refused" in low or "failed to lookup" in low or "no valid" in low:
        return f"the name node {url.place} cannot be reached: {text}"
    if "sasl" in low or "kerberos" in low or "gssapi" in low:
        return f"the name node does not accept this user: get a ticket with kinit ({text})"
    return text
