"""`RedisBackend`: the cells of a checkpoint on a Redis server.

A key's fields are one hash of Redis, and each of its maps is another. Scripts of the server compare
and write (O2), raise marks (O4) and purge (O3): each is one atomic step, also in the append-only
file. All names begin with the checkpoint's id.

    headrace:{ID}:marks              applied, floor, number of cells, a random name of this set
    headrace:{ID}:tombstones         which cells are tombstones, sorted by stamp
    headrace:{ID}:computations       the names of computations
    headrace:{ID}:c:N:COMPUTATIONKEY fields, as F..., and the names of maps, as M...
    headrace:{ID}:m:N:COMPUTATIONKEYMAP  the entries of one map

`run` is made of the server's run id, its replication id and the random name. It changes when the
server restarts, when a replica takes over, and when the database was emptied.

This module does not know when epochs are applied, nor what is above the cells.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthorizationError, NoScriptError
from redis.retry import Retry

from headrace.errors import CorruptCheckpoint, InvalidPipeline, StoreError
from headrace.model.values.keys import hash_key
from headrace.state.backend import AppliedCell, Hashes, StateBackend, StoreMarks
from headrace.state.backends.redis.durability import OPTIONS, Durability, read_durability
from headrace.state.backends.redis.scripts import DROP, MARKS, PURGE, RAISE, RAISE_FLOOR, WRITE
from headrace.state.backends.server_url import ServerUrl, parse_server_url
from headrace.state.segment import ENTRY, Cell

PORT = 6379
SCRIPT_CELLS = 500
SCRIPT_BYTES = 1 << 20
"""While a script runs, the server does nothing else."""
PIPELINE_SCRIPTS = 16
READ_KEYS = 2000
COUNTS_MAX = 3
"""How often cells are counted while epochs are applied beside it."""
PURGE_CELLS = 1000

_HEAD = struct.Struct(">QqIB")
"""Stamp, expires, version, whether it is a tombstone; the value follows. Scripts read it too."""


class RedisBackend(StateBackend):
    """The cells of one checkpoint in one database of a Redis server."""

    name = "redis"

    def __init__(self, url: str, checkpoint: str) -> None:
        """Sends nothing."""
        self._url, self._checkpoint = url, checkpoint
        self.url = parse_redis_url(url)
        self._prefix = b"headrace:{%b}:" % checkpoint.encode()
        self._common = [self._prefix + n for n in (b"marks", b"tombstones", b"computations")]
        self._client = _client(self.url)
        self._durability: Durability | None = None

    def __reduce__(self) -> tuple[type[RedisBackend], tuple[str, str]]:
        return (RedisBackend, (self._url, self._checkpoint))

    def __repr__(self) -> str:
        return f"RedisBackend({self.url.shown!r})"

    @property
    def promise(self) -> str:
        """What the server promises of what it was sent, in words; it is asked once."""
        return self._asked(lambda: self._read_durability().promise)

    def lead(self, generation: int, place: str) -> None:
        """Refuses a server that promises less than the URL accepts."""
        self.promise  # noqa: B018

    # What the store says of itself ----------------------------------------

    def marks(self) -> StoreMarks:
        applied, floor, run = self._run(MARKS, [secrets.token_hex(8)])
        return StoreMarks(int(applied), int(floor), run.decode())

    def raise_applied(self, epoch: int, run: str) -> bool:
        return bool(self._run(RAISE, [epoch, run]))

    def sync(self) -> None:
        self._asked(lambda: self._read_durability().sync(self._client, self._common[0], self.url))

    def lost(self) -> str | None:
        for _ in range(COUNTS_MAX):
            cells, counts = self._counted()
            if cells is None:
                return None
            found = sum(map(self._cells_of, self._owners(self._prefix + b"c:")))
            if self._counted() == (cells, counts):
                break
        else:
            return None
        if found == int(cells):
            return ""
        return (
            f"{int(cells):,} cells were written, and {found:,} are there: put back a copy of the "
            "server's files"
        )

    def _counted(self) -> tuple[bytes | None, bytes | None]:
        """How many cells there are, and a number that grows with each change of that."""
        cells, counts = self._asked(
            lambda: self._client.hmget(self._common[0], ["cells", "counts"])
        )
        return cells, counts

    def _cells_of(self, owners: Sequence[bytes]) -> int:
        """How many cells these keys have, in fields and maps."""

        def ask(command: str, places: Sequence[bytes]) -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for place in places:
                pipeline.execute_command(command, place)
            return pipeline.execute()

        named = self._asked(partial(ask, "HKEYS", owners))
        maps = [
            self._map(owner, name[1:])
            for owner, names in zip(owners, named, strict=True)
            for name in names
            if name[:1] == b"M"
        ]
        fields = sum(len(names) for names in named) - len(maps)
        return fields + sum(self._asked(partial(ask, "HLEN", maps)))

    def purge(self, upto: int) -> None:
        self._run(RAISE_FLOOR, [upto])
        while self._run(PURGE, [PURGE_CELLS]):
            pass

    # Cells ----------------------------------------------------------------

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        calls: list[list[Any]] = []
        args: list[Any] = []
        size = 0
        for computation, cell in cells:
            value = b"" if cell.tombstone else cell.value
            head = _HEAD.pack(epoch, cell.expires, cell.version, cell.tombstone)
            owner = self._owner(computation, cell.key)
            name = cell.field.encode()
            if cell.kind == ENTRY:
                place, field, marker = self._map(owner, name), cell.entry, b"M" + name
            else:
                place, field, marker = owner, b"F" + name, b""
            args += [computation.encode(), owner, place, field, marker, head + value]
            size += len(value) + 100
            if len(args) >= 6 * SCRIPT_CELLS or size > SCRIPT_BYTES:
                calls.append(args)
                args, size = [], 0
            if len(calls) == PIPELINE_SCRIPTS:
                self._run_all(WRITE, [[epoch, *each] for each in calls])
                calls = []
        calls += [args] if args else []
        if calls:
            self._run_all(WRITE, [[epoch, *each] for each in calls])

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        chosen = (key for _, key in self.scan(computation)) if keys is None else iter(keys)
        tombstone = _HEAD.pack(epoch, 0, 0, True)
        for key in chosen:
            owner = self._owner(computation, key)
            self._run(DROP, [epoch, tombstone, len(self._prefix), owner])

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        return [
            {name[1:].decode(): _cell(said) for name, said in found.items() if name[:1] == b"F"}
            for found in self._hashes([self._owner(computation, key) for key in keys])
        ]

    def read_entries(
        self, computation: str, name: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[bytes, AppliedCell]]:
        places = [self._map(self._owner(computation, key), name.encode()) for key in keys]
        return [
            {entry: _cell(said) for entry, said in found.items()} for found in self._hashes(places)
        ]

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        place = self._map(self._owner(computation, key), name.encode())
        said = self._asked(lambda: self._client.hget(place, entry))
        return None if said is None else _cell(said)

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        (found,) = self._hashes([self._map(self._owner(computation, key), name.encode())])
        return [
            (entry, _cell(said))
            for entry, said in found.items()
            if (low is None or entry >= low) and (high is None or entry < high)
        ]

    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        owner = self._owner(computation, key)
        found = self._asked(lambda: self._client.hkeys(owner))
        return [name[1:].decode() for name in found if name[:1] == b"M"]

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        begin = self._owner(computation, b"")
        for names in self._owners(begin):
            for name in names:
                key = name[len(begin) :]
                yield hash_key(key), key

    def _owners(self, begin: bytes) -> Iterator[list[bytes]]:
        """Names that begin so, each in one list. All names of the database are gone through: Redis
        has no other order."""
        pattern = b"".join(b"\\" + bytes([b]) if b in b"\\*?[]^-" else bytes([b]) for b in begin)
        cursor, seen = 0, set[bytes]()
        while True:
            cursor, names = self._asked(
                partial(self._client.scan, cursor, match=pattern + b"*", count=READ_KEYS)
            )
            yield [name for name in dict.fromkeys(names) if name not in seen]
            seen.update(names)
            if not cursor:
                return

    def computations(self) -> Sequence[str]:
        found = self._asked(lambda: self._client.smembers(self._common[2]))
        return sorted(name.decode() for name in found)

    def close(self) -> None:
        self._client.close()

    # Requests -------------------------------------------------------------

    def _owner(self, computation: str, key: bytes) -> bytes:
        name = computation.encode()
        return b"%bc:%d:%b%b" % (self._prefix, len(name), name, key)

    def _map(self, owner: bytes, name: bytes) -> bytes:
        return b"%bm:%d:%b%b" % (self._prefix, len(owner), owner[len(self._prefix) :], name)

    def _hashes(self, places: Sequence[bytes]) -> list[dict[bytes, bytes]]:
        """Hashes of Redis: one round trip for thousands of them."""

        def ask(some: Sequence[bytes]) -> list[dict[bytes, bytes]]:
            pipeline = self._client.pipeline(transaction=False)
            for place in some:
                pipeline.hgetall(place)
            return pipeline.execute()

        found: list[dict[bytes, bytes]] = []
        for i in range(0, len(places), READ_KEYS):
            found += self._asked(partial(ask, places[i : i + READ_KEYS]))
        return found

    def _run(self, script: str, args: Sequence[Any]) -> Any:
        return self._run_all(script, [args])[0]

    def _run_all(self, script: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """Runs a script several times, in one round trip. Every script may be repeated."""
        name = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

        def ask() -> list[Any]:
            pipeline = self._client.pipeline(transaction=False)
            for args in calls:
                pipeline.evalsha(name, len(self._common), *self._common, *args)
            return pipeline.execute()

        def ask_a_server_that_may_be_new() -> list[Any]:
            try:
                return ask()
            except NoScriptError:
                self._client.script_load(script)
                return ask()

        return self._asked(ask_a_server_that_may_be_new)

    def _read_durability(self) -> Durability:
        if self._durability is None:
            self._durability = read_durability(self._client, self.url)
        return self._durability

    def _asked(self, act: Callable[[], Any]) -> Any:
        """The result of `act`; a StoreError where it may succeed later."""
        try:
            return act()
        except (redis.AuthenticationError, AuthorizationError) as error:
            raise InvalidPipeline(
                f"{self.url.shown} refused the user or the password; give them in the URL, "
                f"redis://user:password@host:port/database, or in REDISCLI_AUTH"
            ) from error
        except redis.ResponseError as error:
            said = str(error)
            if "DB index" in said:
                raise InvalidPipeline(
                    f"{self.url.shown}: the server has no database {self.url.place!r} ({said})"
                ) from error
            if said.startswith(("NOPERM", "NOAUTH", "WRONGPASS")):
                raise InvalidPipeline(f"{self.url.shown} does not allow this: {said}") from error
            if "WRONGTYPE" in said:
                raise CorruptCheckpoint(
                    f"{self.url.shown} has another kind of value where a cell is kept ({said}): "
                    "another program has written there; put back a copy of the server's files"
                ) from error
            raise StoreError(f"the state store {self.url.shown} refused: {said}") from error
        except redis.RedisError as error:
            raise StoreError(
                f"the state store {self.url.shown} does not answer: {type(error).__name__}: {error}"
            ) from error


def parse_redis_url(url: str) -> ServerUrl:
    """InvalidPipeline if the URL is not one of a Redis server."""
    found = parse_server_url(url, port=PORT, place="0", several=False, options=OPTIONS)
    if not found.place.isdecimal():
        raise InvalidPipeline(f"{found.shown}: a database of Redis is a number, such as 0")
    found.timeout_s  # noqa: B018  (refused now, not in the first task)
    return found


def _client(url: ServerUrl) -> Any:
    """A client that makes its connections when they are needed, and new ones after a fork."""
    (host, port) = url.servers[0]
    return redis.Redis(
        host=host,
        port=port,
        db=int(url.place),
        username=url.user,
        password=url.password or os.environ.get("REDISCLI_AUTH") or None,
        socket_timeout=url.timeout_s,
        socket_connect_timeout=url.timeout_s,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
        ssl=url.scheme == "rediss",
    )


def _cell(said: bytes) -> AppliedCell:
    if len(said) < _HEAD.size:
        raise CorruptCheckpoint(
            f"a cell in Redis is {said[:20]!r}, which Headrace has not written: another program "
            "has; put back a copy of the server's files"
        )
    stamp, expires, version, gone = _HEAD.unpack_from(said)
    return AppliedCell(stamp, None if gone else said[_HEAD.size :], expires, version)
