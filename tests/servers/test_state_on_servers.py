"""A driver whose state is on a real server: it dies, the server dies and forgets, old copies come
back, a sleeper writes late. What comes out is what segments give.

The drivers run in this process, without Spark: `tests/spark/test_state_on_servers.py` is on Spark.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.state_stores import STORES, HBaseStateStore, StateStore
from tests.servers import hbase_admin
from tests.servers.state_servers import state_server
from tests.unit.engine.support import Crash, die
from tests.unit.engine.test_applying import World, expected

from headrace import failpoints
from headrace.bench.servers.redis_server import PASSWORD, RedisServer, redis_server
from headrace.errors import IncompatibleState, InvalidPipeline, StoreError
from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.decisions.next_step import Run
from headrace.state.backend import StateBackend
from headrace.state.backends.redis.backend import RedisBackend
from headrace.state.cache import WorkerCache
from headrace.state.segment import FIELD, Cell

pytestmark = pytest.mark.timeout(900)

KEY = encode_key("k")
HASHES = np.array([hash_key(KEY)], np.uint64)


class ServerWorld(World):
    """A checkpoint in memory, whose state is on a server."""

    def __init__(self, store: StateStore, **settings: Any) -> None:
        super().__init__(**settings)
        self.on = store

    def open(self, checkpoint: str) -> StateBackend:
        self.backends.append(self.on.open(checkpoint))
        return self.backends[-1]


@pytest.fixture(params=["redis", "hbase", "hbase-flush"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    found = STORES[request.param](tmp_path)
    yield found
    found.close()


def test_drivers_that_die_on_a_server_that_dies_lose_nothing(store: StateStore) -> None:
    world = ServerWorld(store)
    points = ("after-cells-write", "after-store-mark", "before-commit-write", "after-purge")
    for i, point in enumerate(points):
        try:
            driver = world.driver()
            driver.step()
            failpoints.arm(point, die)
            for _ in range(4):
                driver.step()
        except Crash:
            pass
        finally:
            failpoints.disarm()
        world.cache = WorkerCache()
        if i in (0, 2):
            store.crash()
    assert (world.run(), world.state()) == expected()


def test_a_server_that_restarts_under_a_driver_makes_it_apply_again(store: StateStore) -> None:
    world = ServerWorld(store)
    driver = world.driver()
    for i in range(6):
        assert isinstance(driver.step(), Run)
        if i == 3:
            store.crash()
    assert (world.run(driver), world.state()) == expected()


def test_an_older_copy_is_made_good_or_refused(store: StateStore) -> None:
    """While commits are kept that the copy lacks, they are applied again; after that, it is named
    as what it is."""
    world = ServerWorld(store, retain=2)
    driver = world.driver()
    for _ in range(2):
        driver.step()
    copy = store.copy()
    driver.step()
    store.put_back(copy)
    for _ in range(8):
        driver.step()
    store.put_back(copy)
    with pytest.raises(IncompatibleState, match=r"has epoch [123], .*older copy"):
        world.run()


def test_a_sleeper_that_applies_old_epochs_late_changes_nothing(store: StateStore) -> None:
    world = ServerWorld(store)
    first = world.driver()
    for _ in range(3):
        first.step()
    late = partial(first._applier._turn, first._applier._work())
    second = world.driver()
    for _ in range(8):
        second.step()
    late()
    assert (world.run(second), world.state()) == expected()


def test_a_purge_by_a_mark_that_a_crash_took_back_raises_no_floor(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the epochs that are to be applied again would be refused."""
    backend = store.open()
    written(backend, 1, b"one")
    backend.sync()
    copy = store.copy()
    written(backend, 2, b"two")
    before = backend.marks()
    store.put_back(copy)
    monkeypatch.setattr(backend, "marks", lambda: before)
    backend.purge(2)
    after = store.open(generation=2)
    assert after.marks().applied == 1 and after.marks().floor <= 1
    written(after, 2, b"two")
    assert value_in(after) == b"two"


def test_a_deletion_holds_after_a_major_compaction() -> None:
    """HBase drops its own deletions then; a late write of an older epoch would be visible."""
    port = state_server("hbase").process.port
    store = HBaseStateStore("fsync")
    leader, sleeper = store.open(), store.open(generation=2)
    written(leader, 1, b"one")
    leader.write(2, [("C", field_cell(b"")._replace(tombstone=True))])
    assert leader.raise_applied(2, leader.marks().run)
    leader.purge(2)
    hbase_admin.major_compact(port, store.table)
    assert leader.read_fields("C", [KEY], HASHES) == [{}]
    sleeper.write(1, [("C", field_cell(b"one"))])
    assert leader.read_fields("C", [KEY], HASHES) == [{}]
    written(leader, 3, b"three")
    assert value_in(leader) == b"three"


def test_a_process_that_was_forked_makes_its_own_connections(store: StateStore) -> None:
    backend = store.open()
    written(backend, 1, b"one")
    results = []
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                for _ in range(20):
                    assert value_in(backend) == b"one"
                os.write(write, b"well")
            finally:
                os._exit(0)
        for _ in range(20):
            assert value_in(backend) == b"one"
        os.close(write)
        results.append(os.read(read, 10))
        os.waitpid(child, 0)
    assert results == [b"well"] * 2


def test_a_backend_travels_to_a_worker(store: StateStore) -> None:
    backend = store.open()
    written(backend, 1, b"one")
    assert value_in(pickle.loads(pickle.dumps(backend))) == b"one"


# Redis: settings, refusals, passwords ---------------------------------------


@pytest.fixture
def redis() -> RedisServer:
    return state_server("redis")  # type: ignore[no-any-return]


def refusal(url: str, kind: type[Exception] = InvalidPipeline) -> str:
    """What a leader hears that opens this store; the password is never in it."""
    with pytest.raises(kind) as caught:
        RedisBackend(url, "c1").lead(1, "")
    said = str(caught.value)
    assert PASSWORD not in said and "hush" not in said
    return said


def test_a_weaker_server_is_refused_or_accepted_by_name(redis: RedisServer) -> None:
    weak = redis_server(appendfsync="everysec")
    said = refusal(weak.url())
    assert "appendfsync everysec" in said and "?durability=everysec" in said
    accepted = RedisBackend(weak.url(options="?durability=everysec"), "c1")
    accepted.lead(1, "")
    assert "last seconds may be lost" in accepted.promise
    volatile = redis_server(appendonly="no")
    assert "?durability=none" in refusal(volatile.url(options="?durability=everysec"))
    evicting = redis_server(maxmemory="100mb", **{"maxmemory-policy": "allkeys-lru"})
    assert "noeviction" in refusal(evicting.url())
    backend = RedisBackend(redis.url(), "c1")
    backend.lead(1, "")
    assert "appendfsync always" in backend.promise
    for server in (weak, volatile, evicting):
        server.process.kill()


def test_what_is_wrong_with_the_address_is_said(redis: RedisServer) -> None:
    port = redis.process.port
    assert "password" in refusal(redis.url(password="hush"))
    assert "password" in refusal(f"redis://127.0.0.1:{port}/0")
    assert "no database '99'" in refusal(redis.url(database=99))
    assert "is a number" in refusal(f"redis://:hush@127.0.0.1:{port}/orders")
    assert "no option 'durable'" in refusal(redis.url(options="?durable=no"))
    assert "not of the form" in refusal("redis://:hush@:6379/0")
    assert "timeout='soon'" in refusal(redis.url(options="?timeout=soon"))
    nobody = refusal("redis://:hush@127.0.0.1:1/0?timeout=1s", StoreError)
    assert "redis://127.0.0.1:1/0 does not answer" in nobody


def test_a_server_that_hangs_is_an_outage_after_its_timeout() -> None:
    server = redis_server()
    backend = RedisBackend(server.url(options="?timeout=500ms"), "c1")
    written(backend, 1, b"one")
    server.process.hang()
    began = time.monotonic()
    with pytest.raises(StoreError, match="does not answer"):
        backend.marks()
    assert time.monotonic() - began < 15
    server.process.go_on()
    assert value_in(backend) == b"one"
    server.process.kill()


def test_the_password_is_in_no_message_and_no_picture_of_the_backend(redis: RedisServer) -> None:
    backend = RedisBackend(redis.url(), "c1")
    assert PASSWORD not in repr(backend) and PASSWORD not in repr(backend.url)
    os.environ["REDISCLI_AUTH"] = PASSWORD
    try:
        plain = f"redis://127.0.0.1:{redis.process.port}/0?durability=everysec"
        RedisBackend(plain, "c1").lead(1, "")
    finally:
        del os.environ["REDISCLI_AUTH"]


def test_a_database_that_was_emptied_is_another_run(redis: RedisServer) -> None:
    backend = RedisBackend(redis.url(database=5), "c1")
    written(backend, 1, b"one")
    run = backend.marks().run
    backend._client.flushdb()
    marks = backend.marks()
    assert marks.applied == 0 and marks.run != run
    assert not backend.raise_applied(2, run)


def test_what_was_purged_leaves_no_names_behind(redis: RedisServer) -> None:
    backend = RedisBackend(redis.url(database=6), "c1")
    entry = Cell(hash_key(KEY), KEY, 1, "items", b"e", b"v", 1)
    backend.write(1, [("C", entry), ("C", field_cell(b"one"))])
    backend.raise_applied(1, backend.marks().run)
    backend.drop("C", 1, [KEY])
    assert backend._client.dbsize() == 5
    backend.purge(1)
    left = sorted(name.rpartition(b":")[2] for name in backend._client.scan_iter())
    assert left == [b"computations", b"marks"]


def test_a_hash_that_somebody_has_deleted_is_noticed(redis: RedisServer) -> None:
    backend = RedisBackend(redis.url(database=7), "c1")
    entries = [Cell(hash_key(KEY), KEY, 1, "items", b"%d" % n, b"v", 1) for n in range(3)]
    run = backend.marks().run
    backend.write(1, [("C", field_cell(b"one")), *(("C", entry) for entry in entries)])
    assert backend.raise_applied(1, run) and backend.lost() == ""
    for place in list(backend._client.scan_iter(match="*items")):
        copy = backend._client.dump(place)
        backend._client.delete(place)
        assert "4 cells were written, and 1 are there" in str(backend.lost())
        backend._client.restore(place, 0, copy)
    assert backend.lost() == ""
    backend._client.delete(backend._owner("C", KEY))
    assert "4 cells were written, and 0 are there" in str(backend.lost())


def test_cells_of_an_older_release_are_not_counted(redis: RedisServer) -> None:
    backend = RedisBackend(redis.url(database=8), "c1")
    written(backend, 1, b"one")
    backend._client.hdel(backend._common[0], "cells", "counts")
    written(backend, 2, b"two")
    assert backend.lost() is None


def field_cell(value: bytes) -> Cell:
    return Cell(hash_key(KEY), KEY, FIELD, "count", b"", value, 1)


def written(backend: StateBackend, epoch: int, value: bytes) -> None:
    run = backend.marks().run
    backend.write(epoch, [("C", field_cell(value))])
    assert backend.raise_applied(epoch, run)


def value_in(backend: StateBackend) -> bytes | None:
    return backend.read_fields("C", [KEY], HASHES)[0]["count"].value
