"""`verify` finds what is damaged or missing, by name, and says of the rest that it is harmless."""

from __future__ import annotations

import pytest
from tests.unit.engine.primitives.support import everything
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import limited

from headrace.engine.primitives.verified import Verified
from headrace.engine.primitives.verify import verify_checkpoint
from headrace.log import paths, rings
from headrace.plan.control import ControlRequest
from headrace.store.memory import MemoryStore

LIMITS = {"snapshot_every_epochs": 3, "log_directory_entries": 8, "collect_every_epochs": 2}


@pytest.fixture(scope="module", params=[0, 32_000], ids=["files", "riders"])
def whole(request: pytest.FixtureRequest) -> dict[str, bytes]:
    store = MemoryStore(limited(**LIMITS, ride_bytes_max=request.param, ring_steps_max=1))
    driver = driver_of(everything(30), store, retain_epochs=3)
    run(driver, 3)
    driver.control.own(ControlRequest("", "s", "s", "savepoint", {"name": "kept"}))
    arguments = {"computation": "Everything", "slots": 3}
    driver.control.own(ControlRequest("", "r", "r", "rescale", arguments))
    run(driver)
    return dict(store.files)


def verified(files: dict[str, bytes]) -> Verified:
    rings._decoded.clear()
    store = MemoryStore(limited(**LIMITS))
    store.files.update(files)
    return verify_checkpoint(store)


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 4]) + data[-2:]


def test_a_checkpoint_as_it_was_left_is_whole(whole: dict[str, bytes]) -> None:
    found = verified(whole)
    assert (found.problems, found.notes) == ([], [])
    kinds = {name.partition("/")[0] for name in found.orphans}
    assert kinds <= {"state", "staged", "outbox"}, "the next collection is due"
    assert found.pipeline == "everything" and found.epoch > 5
    unchecked = {n for n, data in whole.items() if n.startswith(("sinks/", "merged/")) or not data}
    assert found.files == len(whole) - len(unchecked), "all but workspaces and empty markers"


@pytest.mark.parametrize("kind", ["IDENTITY", "log", "state", "rings", "savepoints"])
def test_a_damaged_file_is_a_problem_that_names_it(whole: dict[str, bytes], kind: str) -> None:
    for name in [n for n in whole if n.partition("/")[0] == kind][:3]:
        found = verified({**whole, name: flipped(whole[name])})
        assert name in {problem.file for problem in found.problems}, name


@pytest.mark.parametrize("kind", ["state", "rings", "savepoints", "log"])
def test_a_missing_file_is_a_problem_that_names_it(whole: dict[str, bytes], kind: str) -> None:
    names = [n for n in sorted(whole) if n.partition("/")[0] == kind]
    orphans = verified(whole).orphans
    needed = [n for n in names if n not in orphans and not n.endswith(".trimmed")]
    for name in needed[3:4] if kind == "log" else needed[:2]:
        found = verified({n: data for n, data in whole.items() if n != name})
        assert name in {problem.file for problem in found.problems}, name


def test_a_checkpoint_without_its_log_is_not_whole(whole: dict[str, bytes]) -> None:
    left = {name: data for name, data in whole.items() if not name.startswith("log/")}
    found = verified(left)
    assert [problem.file for problem in found.problems] == ["log"]
    assert "the log is missing" in found.problems[0].what
    assert verified({"IDENTITY": whole["IDENTITY"]}).is_whole, "one that has just begun"
    found = verified({"IDENTITY": whole["IDENTITY"], "LEASE": b"x"})
    assert not found.is_whole, "where all state rode in the log, the lease of its driver is left"


def test_what_nobody_names_is_an_orphan_and_no_problem(whole: dict[str, bytes]) -> None:
    [some, *_] = [n for n in whole if n.startswith("state/")]
    directory = some.rpartition("/")[0]
    orphan = f"{directory}/{paths.content_name(1, 'Everything/0', 'a' * 32, '.arrow')}"
    open_now = f"{directory}/{paths.content_name(999, 'Everything/0', 'a' * 32, '.arrow')}"
    before = verified(whole)
    others = {"README": b"", "LEASE": b"x", "STATUS": b"x"}
    found = verified({**whole, orphan: b"12345", open_now: b"", **others})
    assert found.is_whole
    assert set(found.orphans) - set(before.orphans) == {orphan}
    assert found.orphan_bytes == before.orphan_bytes + 5
    assert any("README" in note for note in found.notes)
    assert any("LEASE" in note for note in found.notes)
    assert not any("STATUS" in note for note in found.notes), "a run leaves it, only for people"


@pytest.mark.parametrize("ride_bytes_max", [0, 32_000])
def test_a_pipeline_that_goes_on_meanwhile_is_whole(
    ride_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(limited(**LIMITS, ride_bytes_max=ride_bytes_max))
    driver = driver_of(everything(400), store, retain_epochs=3)
    run(driver, 6)
    read, steps, busy = MemoryStore.read, iter(()), False

    def reading(self: MemoryStore, name: str) -> bytes:
        nonlocal busy
        if not busy and next(steps, False):
            busy = True
            driver.step()
            busy = False
        return read(self, name)

    monkeypatch.setattr(MemoryStore, "read", reading)
    for every in (1, 2, 3, 5, 9, 17, 33):
        steps = (number % every == every - 1 for number in range(40))
        epoch, found = driver.ledger.epoch, verify_checkpoint(store)
        assert (found.problems, found.notes) == ([], []), every
        assert driver.ledger.epoch > epoch
