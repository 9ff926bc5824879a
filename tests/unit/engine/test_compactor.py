"""Background merges: adopted by the open epoch if their run is unchanged, else thrown away (C2)."""

from __future__ import annotations

import threading
from functools import partial
from itertools import pairwise

import msgspec
import pyarrow as pa
import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, run
from tests.unit.systems import FILES, limited

from headrace import failpoints
from headrace.engine.driver.driver import Driver
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.upkeep.collection import collect, needed_by
from headrace.engine.upkeep.compactor import Compactor
from headrace.errors import CorruptCheckpoint, StoreError
from headrace.limits import LIMITS
from headrace.log import paths
from headrace.plan.epoch import Adoption, Plan
from headrace.plan.rings.wanted import Wanted
from headrace.state import compaction
from headrace.state.segment import Segment
from headrace.store.memory import MemoryStore
from headrace.system import System

VALUES = [i * 7 % 10 for i in range(400)]

RETRY_AFTER = LIMITS.merge_retry_epochs


class Never(Compactor):
    """Lets segments pile up."""

    def consider(self, history, places) -> None:
        pass


def piled_up(epochs: int = 12, system: System = FILES, **options) -> Driver:
    """A driver over so many unmerged epochs."""
    driver = driver_of(counting(VALUES), MemoryStore(system), **options)
    driver._compactor = Never(
        driver.store, driver.topology, driver._rings.ring_of, background=False
    )
    run(driver, epochs)
    driver._compactor = Compactor(
        driver.store, driver.topology, driver._rings.ring_of, background=False
    )
    return driver


def next_plan(driver: Driver) -> Plan:
    plan = driver.ledger.open_plan
    assert plan is not None
    return plan


def merged(driver: Driver) -> list[str]:
    return driver.store.list(paths.MERGED)


def adopted(driver: Driver, plan: Plan | None = None) -> list[Adoption]:
    """What the commit of a plan adopts, after its job has run."""
    plan = plan or next_plan(driver)
    slots = partial(driver._rings.slot, plan)
    driver._compactor.begin(plan, slots)
    return driver._compactor.adoptions(plan, slots)


def considered(driver: Driver) -> None:
    """Starts merges where they are due, in all slots."""
    slots = driver.ledger.slots.items()
    places = [(name, slot) for name, of_name in slots for slot in of_name]
    driver._compactor.consider(driver.history, places)


def take(driver: Driver, adoptions: list[Adoption]) -> None:
    """What a commit does with adoptions."""
    for each in adoptions:
        driver.ledger.manifests._adopt(each, driver.ledger.commit_position)


def counts(driver: Driver) -> dict:
    return dict(Checkpoint(driver.store).scan("Count"))


def test_a_merge_takes_its_runs_place_and_changes_no_answer() -> None:
    driver = piled_up()
    before, entries = counts(driver), driver.ledger.slots["Count"][0].entries
    considered(driver)
    (adoption, _) = adoptions = adopted(driver)
    assert adoption.replaces == tuple((e.segment, None) for e in entries)
    assert adoption.entry.last_epoch == max(e.last_epoch for e in entries)
    epoch, label, _ = paths.parse_content_name(adoption.entry.segment.rsplit("/", 1)[1])
    assert (epoch, label) == (driver.ledger.epoch + 1, "Count/0~")
    take(driver, adoptions)
    assert len(driver.ledger.slots["Count"][0].entries) == 1
    view = Checkpoint(driver.store)
    view._ledger = driver.ledger
    assert dict(view.scan("Count")) == before != {}


def test_a_pipeline_with_merges_ends_with_the_state_of_one_without() -> None:
    merging, plain = driver_of(counting(VALUES)), piled_up(10_000)
    run(merging)
    assert merging._compactor.adopted > 0
    assert counts(merging) == counts(plain)
    few = max(len(slot.entries) for slot in merging.ledger.slots["Count"].values())
    many = max(len(slot.entries) for slot in plain.ledger.slots["Count"].values())
    assert few < 20 < many


def test_a_result_whose_run_has_changed_is_thrown_away() -> None:
    driver = piled_up()
    considered(driver)
    assert len(merged(driver)) == 2
    slot = driver.ledger.slots["Count"][0]
    driver.ledger.slots["Count"][0] = msgspec.structs.replace(slot, entries=slot.entries[1:])
    (adoption,) = adopted(driver)
    assert adoption.slot == 1
    assert merged(driver) == []


def test_a_ring_change_does_not_cancel_a_merge() -> None:
    """J5. What left took the segments with it; what comes back is in a later class."""
    driver = piled_up()
    considered(driver)
    driver.stop()
    driver.ledger.wanted["Count"] = Wanted(slots=3)
    run(driver, 1)
    assert driver._compactor.adopted == 2 and len(driver.ledger.slots["Count"]) == 3
    driver.ledger.wanted["Count"] = Wanted(slots=1)
    run(driver, 2)
    (slot,) = driver.ledger.slots["Count"].values()
    assert len(slot.classes) > 1
    run(driver)
    assert counts(driver) == counts(piled_up(10_000))


def test_a_result_is_offered_to_one_epoch_only() -> None:
    driver = piled_up()
    considered(driver)
    assert len(adopted(driver)) == 2
    assert adopted(driver) == []


def test_a_full_disk_delays_a_merge_and_stops_nothing() -> None:
    driver = piled_up()
    real = driver.store.write

    def full(name: str, data: bytes) -> None:
        if name.startswith("merged/"):
            raise StoreError("the disk is full")
        real(name, data)

    driver.store.write = full  # type: ignore[method-assign]
    run(driver, 3)
    assert driver._compactor.adopted == 0
    driver.store.write = real  # type: ignore[method-assign]
    run(driver, 3)
    assert driver._compactor.adopted == 0, "it waits before it tries again"
    run(driver, RETRY_AFTER)
    assert driver._compactor.adopted > 0


def test_a_swept_result_is_forgotten() -> None:
    driver = piled_up()
    considered(driver)
    for name in merged(driver):
        driver.store.delete(f"{paths.MERGED}/{name}")
    assert adopted(driver) == []


def test_a_damaged_segment_is_not_merged_over() -> None:
    driver = piled_up()
    name = driver.ledger.slots["Count"][0].entries[3].segment
    driver.store.files[name] = driver.store.files[name][:-1]
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        considered(driver)
        adopted(driver)


def test_a_merge_that_fails_for_any_reason_stops_nothing_and_is_left_alone_ever_longer(
    monkeypatch, caplog
) -> None:
    driver = piled_up()
    tries = []

    def overflowing(*given, **options):
        tries.append(driver.ledger.epoch)
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(compaction, "merge", overflowing)
    run(driver, 4 * RETRY_AFTER)
    assert driver.ledger.epoch > 3 * RETRY_AFTER and driver._compactor.adopted == 0
    assert "could not be merged (ArrowInvalid: offset overflow" in caplog.text
    epochs = sorted(set(tries))
    assert epochs[1] - epochs[0] >= RETRY_AFTER and epochs[2] - epochs[1] >= 2 * RETRY_AFTER


def test_a_merge_while_the_whole_checkpoint_is_away_is_tried_again() -> None:
    driver = piled_up()
    kept = dict(driver.store.files)
    driver.store.files.clear()
    considered(driver)
    driver.store.files.update(kept)
    assert adopted(driver) == []
    run(driver, RETRY_AFTER + 2)
    assert driver._compactor.adopted > 0


def test_a_missing_segment_of_a_checkpoint_that_is_there_is_raised() -> None:
    driver = piled_up()
    del driver.store.files[driver.ledger.slots["Count"][0].entries[3].segment]
    considered(driver)
    with pytest.raises(CorruptCheckpoint, match="is missing from the checkpoint"):
        adopted(driver)


@pytest.mark.parametrize("piece", [500, 3000])
def test_a_large_run_is_merged_in_pieces_that_are_merged_again_together(piece: int) -> None:
    driver = piled_up(
        system=limited(merge_piece_bytes=piece, merge_sample_bytes=50, ride_bytes_max=0)
    )
    before = counts(driver)
    considered(driver)
    adoptions = adopted(driver)
    assert len(adoptions) > 2 and driver._compactor.adopted == 2
    take(driver, adoptions)
    for slot, state in driver.ledger.slots["Count"].items():
        found = [Segment.open(driver.store, e.segment).hashes for e in state.entries]
        found.sort(key=lambda hashes: int(hashes[0]))
        whole = driver._rings.ring_of("Count").records(slot)
        assert all(whole.have(hashes).all() for hashes in found)
        assert all(one[-1] < other[0] for one, other in pairwise(found))
        assert len({e.last_epoch for e in state.entries}) == 1
        assert compaction.choose(state.entries) == (), "pieces are not a run of their own"
    view = Checkpoint(driver.store)
    view._ledger = driver.ledger
    assert dict(view.scan("Count")) == before != {}


def test_a_pipeline_whose_merges_are_cut_to_pieces_ends_with_the_state_of_one_without() -> None:
    store = MemoryStore(limited(merge_piece_bytes=1000, merge_sample_bytes=50))
    merging, plain = driver_of(counting(VALUES), store), piled_up(10_000)
    run(merging)
    assert merging._compactor.adopted > 1
    assert counts(merging) == counts(plain)


def test_epochs_go_on_while_a_merge_is_running() -> None:
    driver = piled_up()
    gate = threading.Event()

    class Slow(Compactor):
        def _merge(self, *given):
            gate.wait(10)
            return super()._merge(*given)

    slow = driver._compactor = Slow(
        driver.store, driver.topology, driver._rings.ring_of, background=True
    )
    considered(driver)
    assert run(driver, 3) == 3 and slow.adopted == 0
    gate.set()
    for merge in slow._merges.values():
        merge.merging.result(10)
    run(driver, 1)
    slow.close()
    assert slow.adopted >= 1


class SlowCopies(MemoryStore):
    """Copies only when the test lets it."""

    def __init__(self) -> None:
        super().__init__(FILES)
        self.gate = threading.Event()
        self.copied: list[str] = []

    def copy(self, old: str, new: str) -> None:
        self.gate.wait(100)
        super().copy(old, new)
        self.copied.append(new)


def epoch_of(name: str) -> int:
    return paths.parse_content_name(name.rsplit("/", 1)[1])[0]


def test_an_epoch_never_waits_for_a_copy_and_adopts_only_what_has_its_own_number() -> None:
    store = SlowCopies()
    driver = driver_of(counting(VALUES), store, slots=1)
    driver._compactor = Never(store, driver.topology, driver._rings.ring_of, background=False)
    run(driver, 12)
    slow = driver._compactor = Compactor(
        store, driver.topology, driver._rings.ring_of, background=True
    )
    considered(driver)
    for merge in slow._merges.values():
        merge.merging.result(10)
    run(driver, 7)  # copies for the epochs 13, 15 and 18 are late, each further ahead
    assert slow.adopted == 0 and driver.ledger.epoch == 19
    (merge,) = slow._merges.values()
    assert merge.target == 23 and merge.copying is not None
    store.gate.set()
    merge.copying.result(10)
    assert 23 in map(epoch_of, store.copied)
    run(driver, 3)
    assert slow.adopted == 0
    run(driver, 1)
    assert slow.adopted == 1 and driver.ledger.epoch == 23
    entries = driver.ledger.slots["Count"][0].entries
    assert epoch_of(entries[0].segment) == 23
    slow.close()
    assert counts(driver) == counts(piled_up(23, slots=1))


@pytest.mark.parametrize("name", ["after-merge-write", "after-merge-copy"])
def test_what_a_driver_left_that_died_in_a_merge_is_swept(name: str) -> None:
    store = MemoryStore(limited(collect_every_epochs=1, ride_bytes_max=0))
    driver = driver_of(counting(VALUES), store)
    failpoints.arm(name, die)
    with pytest.raises(Crash):
        run(driver)
    failpoints.disarm()
    left = store.list(paths.MERGED)
    assert left
    driver = driver_of(counting(VALUES), store)
    run(driver, 3)
    assert not {*left} & {*store.list(paths.MERGED)}
    late = paths.merged(driver.ledger.epoch, "zombie")
    store.write(late, b"of a driver that slept")
    run(driver, 1)
    assert late not in store.files
    needed = driver.history.files()
    assert {n for n in store.files if n.startswith("state/")} <= needed
    run(driver)
    assert counts(driver) == counts(piled_up(10_000))


def test_no_file_of_a_merge_that_waits_is_swept() -> None:
    driver = piled_up(retain_epochs=1)
    compactor = driver._compactor
    considered(driver)
    before = merged(driver)
    collected = needed_by(driver.history, 2**62, compactor.merging_since(driver.ledger.epoch))
    collect(driver.store, driver.log, collected)
    assert merged(driver) == before != []
    assert compactor.merging_since(99) == driver.ledger.epoch + 1
    adopted(driver)
    assert compactor.merging_since(99) == 100 and merged(driver) == []
