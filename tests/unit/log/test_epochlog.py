"""The epoch log: one winner per position, whatever a store does (PROTOCOL A1-A3)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from tests.unit.systems import Hurried, limited

from headrace.errors import CorruptCheckpoint, Fenced, IncompatibleState, StoreError
from headrace.log import paths
from headrace.log.entry import COMMIT, GENERATION, PLAN
from headrace.log.epochlog import EpochLog
from headrace.log.identity import claim_identity, read_identity
from headrace.log.sealed import seal
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store

TENS = limited(log_directory_entries=10)


def opened(store: Store) -> EpochLog:
    log = EpochLog(store)
    for _ in log.take_over():
        pass
    return log


def kinds(store: Store) -> list[tuple[str, int]]:
    reader = EpochLog(store)
    return [(entry.kind, entry.generation) for _, entry in reader.follow()]


class Faulty(MemoryStore):
    """Runs `before` instead of a put, once; it may put, raise, or both."""

    def __init__(self) -> None:
        super().__init__(Hurried())
        self.faults: list[str] = []
        self.late: tuple[str, bytes] | None = None

    def put_if_absent(self, name: str, data: bytes) -> bool:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "lands and raises":
            super().put_if_absent(name, data)
            raise StoreError("timed out")
        if fault == "fails":
            raise StoreError("timed out")
        if fault == "lands late":
            self.late = (name, data)
            raise StoreError("timed out")
        if self.late is not None:
            super().put_if_absent(*self.late)
            self.late = None
        return super().put_if_absent(name, data)


def test_entries_are_read_back_in_order_from_both_ends() -> None:
    store = MemoryStore()
    log = opened(store)
    assert log.append(PLAN, {"n": 1}) == 2
    assert log.append(COMMIT, {"n": 2}) == 3
    assert kinds(store) == [(GENERATION, 1), (PLAN, 1), (COMMIT, 1)]
    reader = EpochLog(store)
    assert [position for position, _ in reader.backwards()] == [3, 2, 1]
    assert msgspec.json.decode(reader.read(3).body) == {"n": 2}
    assert reader.read(4) is None


@pytest.mark.parametrize("fault", ["lands and raises", "fails", "lands late"])
def test_a_put_of_unknown_outcome_is_settled_with_one_entry(fault: str) -> None:
    store = Faulty()
    log = opened(store)
    store.faults = [fault]
    log.append(COMMIT, {})
    log.append(PLAN, {})
    assert kinds(store) == [(GENERATION, 1), (COMMIT, 1), (PLAN, 1)]


def test_a_put_that_fails_for_good_raises_and_nothing_is_written_after_it() -> None:
    """It may still land: an entry with another nonce would be fenced by the driver's own."""
    store = Faulty()
    log = opened(store)
    store.faults = ["fails"] * 7 + ["lands late"]
    with pytest.raises(StoreError, match="position 2 could not be written"):
        log.append(COMMIT, {})
    assert len(store.files) == 1
    with pytest.raises(StoreError, match="start the pipeline again"):
        log.append(PLAN, {})
    assert len(store.files) == 1


def test_a_refusal_to_read_back_is_not_taken_for_an_empty_position() -> None:
    class Unreadable(Faulty):
        def read(self, name: str) -> bytes:
            if name.startswith("log/") and not name.endswith(".trimmed") and self.refusing:
                self.refusing -= 1
                raise StoreError("stale handle")
            return super().read(name)

        refusing = 0

    store = Unreadable()
    log = opened(store)
    store.faults, store.refusing = ["lands and raises"], 1
    assert log.append(COMMIT, {}) == 2
    assert kinds(store) == [(GENERATION, 1), (COMMIT, 1)]


def test_a_successor_folds_in_what_came_first_and_fences_its_predecessor() -> None:
    store = MemoryStore()
    old = opened(store)
    old.append(PLAN, {})
    new = EpochLog(store)
    takeover = new.take_over()
    assert next(takeover)[1].kind == GENERATION
    old.append(COMMIT, {})  # lands before the successor's generation: it counts
    folded = [entry.kind for _, entry in takeover]
    assert folded == [PLAN, COMMIT]
    assert new.generation == 2
    with pytest.raises(Fenced, match="generation 2"):
        old.append(PLAN, {})
    with pytest.raises(Fenced):
        old.check()
    new.check()
    assert kinds(store) == [(GENERATION, 1), (PLAN, 1), (COMMIT, 1), (GENERATION, 2)]


def test_a_foreign_generation_at_the_wanted_position_raises_ones_own() -> None:
    store = MemoryStore()
    first, second = EpochLog(store), EpochLog(store)
    # Both have read an empty log; the other one is faster.
    racing = second.take_over()
    real, done = store.put_if_absent, []

    def overtaken(name: str, data: bytes) -> bool:
        if not done:
            done.append(True)
            list(first.take_over())
        return real(name, data)

    store.put_if_absent = overtaken  # type: ignore[method-assign]
    assert [entry.generation for _, entry in racing] == [1]
    assert (first.generation, second.generation) == (1, 2)


@pytest.mark.parametrize("on_disk", [True, False])
def test_of_drivers_that_race_in_threads_exactly_one_owns_each_position(
    tmp_path: Path, on_disk: bool
) -> None:
    store: Store = DiskStore(tmp_path) if on_disk else MemoryStore()
    store.make_directory(paths.log_directory(1))
    results: list[tuple[int, list[int]]] = []

    def live() -> None:
        log = opened(store)
        mine = []
        try:
            for _ in range(10):
                mine.append(log.append(COMMIT, {}))
        except Fenced:
            pass
        results.append((log.generation, mine))

    threads = [threading.Thread(target=live) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generations = [generation for generation, _ in results]
    assert sorted(generations) == [1, 2, 3, 4]
    written = [position for _, mine in results for position in mine]
    assert len(written) == len(set(written))
    by_generation = dict(results)
    found = kinds(store)
    for position, (kind, generation) in enumerate(found, 1):
        assert (position in by_generation[generation]) == (kind == COMMIT)
    # Generations never fall along the log: no older driver wrote after a newer took over.
    assert [g for _, g in found] == sorted(g for _, g in found)


def long_log(store: Store, entries: int) -> EpochLog:
    log = opened(store)
    while log.position < entries:
        log.append(COMMIT, {})
    return log


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_trimmed_position_is_never_free_again(tmp_path: Path, on_disk: bool) -> None:
    store: Store = DiskStore(tmp_path, TENS) if on_disk else MemoryStore(TENS)
    store.make_directory(paths.log_directory(1, TENS.limits))
    zombie = opened(store)
    successor = opened(store)
    while successor.position < 35:
        successor.append(COMMIT, {})
    for stuck_at in (2, 9, 10, 19):
        zombie.position = stuck_at - 1
        successor.trim(25)
        with pytest.raises(Fenced):
            zombie.append(COMMIT, {})
        zombie._in_doubt = None
    assert [p for p, _ in EpochLog(store).backwards()] == list(range(35, 19, -1))
    assert EpochLog(store).last_position() == 35


@pytest.mark.parametrize("stuck_at", [1, 8, 9, 18])
def test_a_driver_that_looks_where_the_log_was_trimmed_is_fenced(stuck_at: int) -> None:
    """The position after its own is empty, but not free: others have written on, and trimmed."""
    store = MemoryStore(TENS)
    log = long_log(store, 35)
    log.trim(25)
    zombie = EpochLog(store)
    zombie.position, zombie.generation = stuck_at, 1
    with pytest.raises(Fenced, match="trimmed"):
        zombie.check()
    log.check()


def test_a_put_that_lands_while_the_log_is_trimmed_under_it_is_fenced() -> None:
    """The zombie looks for the marker, finds none, is paused; then the log is trimmed past it."""
    store = MemoryStore(TENS)
    log = long_log(store, 25)
    zombie = EpochLog(store)
    zombie.position, zombie.generation = 4, 1
    real = store.put_if_absent

    def trimmed_meanwhile(name: str, data: bytes) -> bool:
        if name == paths.log_entry(5, TENS.limits):
            log.trim(25)
        return real(name, data)

    store.put_if_absent = trimmed_meanwhile  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        zombie.append(COMMIT, {})


def test_trimming_a_long_log_again_and_again_leaves_few_names(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, TENS)
    store.make_directory(paths.log_directory(1, TENS.limits))
    log = opened(store)
    for _ in range(40):
        log.append(COMMIT, {})
        log.trim(log.position - 5)
    directories = [name for name in store.list(paths.LOG) if name.isdigit()]
    assert len(directories) <= 2
    assert EpochLog(store).last_position() == 41


@pytest.mark.parametrize("on_disk", [True, False])
def test_markers_of_many_directories_become_one(tmp_path: Path, on_disk: bool) -> None:
    few = limited(log_directory_entries=2, log_markers_together=4)
    store: Store = DiskStore(tmp_path, few) if on_disk else MemoryStore(few)
    store.make_directory(paths.log_directory(1, few.limits))
    zombie = opened(store)
    log = opened(store)
    most = 0
    for _ in range(200):
        log.append(COMMIT, {})
        log.trim(log.position - 2)
        most = max(most, sum("-" not in n and "." in n for n in store.list(paths.LOG)))
    assert most <= 4
    for stuck_at in range(2, 190):
        zombie.position, zombie._in_doubt = stuck_at - 1, None
        assert zombie.is_trimmed(stuck_at)
        with pytest.raises(Fenced):
            zombie.check()
        with pytest.raises(Fenced):
            zombie.append(COMMIT, {})
    assert not log.is_trimmed(log.position)
    log.check()


def test_a_marker_of_many_is_there_before_those_of_each_go() -> None:
    few = limited(log_directory_entries=2, log_markers_together=4)
    store = MemoryStore(few)
    log = long_log(store, 30)
    gathered = []
    real = store.delete_all

    def watched(names: Iterable[str]) -> None:
        gone = list(names)
        real(gone)
        if gone[0].endswith(".trimmed"):
            gathered.append(gone)
            assert all(EpochLog(store).is_trimmed(position) for position in range(1, 24))

    store.delete_all = watched  # type: ignore[method-assign]
    log.trim(25)
    assert [len(gone) for gone in gathered] == [4, 4, 4]
    assert store.list(paths.LOG)[0] == "000000-000003.trimmed"


def entry_of(log: EpochLog, position: int) -> str:
    return paths.log_entry(position)


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        (lambda data: data[:-5], CorruptCheckpoint, "checksum"),
        (lambda data: data[:10], CorruptCheckpoint, "headrace-log file"),
        (lambda data: b"", CorruptCheckpoint, "headrace-log file"),
        (lambda data: data.replace(b'"commit"', b'"commix"'), CorruptCheckpoint, "checksum"),
        (lambda data: b"\x80\x04\x95pickle", CorruptCheckpoint, "headrace-log file"),
        (lambda data: data.replace(b"-log 3 ", b"-log 4 ", 1), IncompatibleState, "upgrade"),
        (lambda data: data.replace(b"-log 3 ", b"-log 2 ", 1), IncompatibleState, "new checkpoint"),
        (lambda data: seal(b"headrace-log", b'{"kind": 3}'), CorruptCheckpoint, "decoded"),
        (lambda data: seal(b"headrace-other", b"{}"), CorruptCheckpoint, "headrace-log file"),
    ],
)
def test_a_damaged_or_foreign_entry_is_refused(damage, error, says: str) -> None:
    store = MemoryStore()
    log = opened(store)
    log.append(COMMIT, {})
    name = paths.log_entry(2)
    store.files[name] = damage(store.files[name])
    with pytest.raises(error, match=says) as found:
        EpochLog(store).read(2)
    assert name in str(found.value)


def test_a_checkpoint_has_one_id_for_ever_and_refuses_another_pipeline() -> None:
    store = MemoryStore()
    assert read_identity(store) is None
    mine = claim_identity(store, "orders")
    assert claim_identity(store, "orders") == mine == read_identity(store)
    with pytest.raises(IncompatibleState, match="belongs to pipeline 'orders', not 'clicks'"):
        claim_identity(store, "clicks")
    assert claim_identity(MemoryStore(), "orders").id != mine.id


def test_of_two_that_claim_a_new_checkpoint_both_get_the_same_id() -> None:
    class Late(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            if not self.files:
                self.files[name] = other
            return super().put_if_absent(name, data)

    first = MemoryStore()
    winner = claim_identity(first, "orders")
    other = first.files[paths.IDENTITY]
    assert claim_identity(Late(), "orders") == winner


def test_a_log_without_identity_is_refused_rather_than_started_anew() -> None:
    store = MemoryStore()
    opened(store)
    with pytest.raises(CorruptCheckpoint, match="no IDENTITY"):
        claim_identity(store, "orders")


def test_a_damaged_identity_is_refused() -> None:
    store = MemoryStore()
    claim_identity(store, "orders")
    store.files[paths.IDENTITY] = store.files[paths.IDENTITY].replace(b"orders", b"clicks")
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        claim_identity(store, "clicks")
