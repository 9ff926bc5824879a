"""Primitives of a checkpoint with a state store: what it cannot do is refused by name."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.unit.engine.test_applying import World

from headrace import Backup, Checkpoint, StatePart
from headrace.cli.main import cli
from headrace.engine.primitives.backups.restoring import restore_backup
from headrace.engine.primitives.backups.taking import back_up
from headrace.engine.primitives.stores import standing
from headrace.engine.primitives.stores.standing import standing_state
from headrace.errors import CorruptCheckpoint, HeadraceError, IncompatibleState, StoreError
from headrace.model.values.codec import decode_value
from headrace.plan.decisions.next_step import Run
from headrace.plan.state.choice import StateChoice
from headrace.state.backend import PlaceGone
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore

KINDS = ("memory", "files", "log")


def ran(kind: str, tmp_path: Path, epochs: int = 7) -> World:
    """A pipeline that has stopped in the middle, with epochs that are not applied yet."""
    world = World(kind=kind, path=tmp_path / kind)
    driver = world.driver()
    for _ in range(epochs):
        driver.step()
    driver.close()
    return world


def opened(world: World) -> Checkpoint:
    return Checkpoint(world.store, opens=world.opens(world.kind))


def on_segments(epochs: int = 7) -> Checkpoint:
    """The same without a state store."""
    plain = World(kind="segments")
    driver = plain.driver()
    for _ in range(epochs):
        driver.step()
    driver.close()
    return Checkpoint(plain.store)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_gives_what_segments_give(kind: str, tmp_path: Path) -> None:
    found, expected = opened(ran(kind, tmp_path)), on_segments()
    assert found.epoch == expected.epoch == 7
    assert dict(found.scan("Basket")) == dict(expected.scan("Basket")) != {}
    assert found.lookup("Basket", "key 1") == expected.lookup("Basket", "key 1")
    assert found.table("Basket").sort_by("key") == expected.table("Basket").sort_by("key")
    query = "SELECT sum(n) AS n, sum(cardinality(seen)) AS e FROM state"
    assert found.sql(query, "Basket") == expected.sql(query, "Basket")
    assert found.export("Basket", tmp_path / "out").rows == len(dict(expected.scan("Basket")))
    assert pq.read_table(tmp_path / "out").sort_by("key") == found.table("Basket").sort_by("key")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_fields_entries_and_timers(kind: str, tmp_path: Path) -> None:
    part, expected = opened(ran(kind, tmp_path)).part("Basket"), on_segments().part("Basket")

    def cells(of: StatePart) -> list[tuple[Any, ...]]:
        found = [(c.key, c.kind, c.field, c.entry, c.value, c.expires) for c in of.cells()]
        return [(*c[:4], decode_value(c[4]) if c[1] < 2 else c[4], c[5]) for c in found]

    assert cells(part) == cells(expected)
    assert cells(StatePart.merge(part.partition(3))) == cells(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to_kind", ["segments", *KINDS])
def test_a_backup_needs_no_store_and_is_restored_into_any(
    kind: str, to_kind: str, tmp_path: Path
) -> None:
    world = ran(kind, tmp_path)
    place = MemoryStore()
    assert opened(world).backup(place).epoch == 7
    assert Backup(place).verify().is_whole
    whole = World(kind="segments")
    again = World(kind=to_kind, path=tmp_path / "again")
    choice, opens = StateChoice(to_kind), again.opens(to_kind)
    restored = restore_backup(place, again.store, None, choice, opens)
    assert (restored.state, restored.state_before) == (to_kind, kind)
    assert dict(opened(again).scan("Basket")) == dict(on_segments().scan("Basket"))
    assert opened(again).verify().problems == []
    rows = again.run()
    assert again.state() == dict(whole.state() if whole.run() else {}) != {}
    assert set(rows) <= set(map(repr, whole.sink.rows)), "what comes after epoch 7"
    assert opened(again).verify().is_whole


def test_a_checkpoint_on_segments_is_restored_into_a_state_store(tmp_path: Path) -> None:
    world, place = ran("segments", tmp_path), MemoryStore()
    Checkpoint(world.store).backup(place)
    Backup(place).restore(tmp_path / "again", state="log")
    with pytest.raises(IncompatibleState, match="keeps its state in 'log'.*start it with"):
        World(kind="segments", path=tmp_path / "again").driver()
    again = World(kind="log", path=tmp_path / "again")
    again.run()
    whole = World(kind="segments")
    whole.run()
    assert again.state() == whole.state()


@pytest.mark.parametrize("kind", ["files", "log"])
def test_a_flipped_byte_in_a_state_store_is_found_or_harmless(kind: str, tmp_path: Path) -> None:
    world = ran(kind, tmp_path)
    whole = opened(world).verify()
    assert whole.is_whole and whole.cells > 10
    before, dice = world.state(), random.Random(7)
    files = sorted(f for f in (tmp_path / kind / "cells").rglob("*") if f.is_file())
    files = [f for f in files if f.stat().st_size]
    found = 0
    for _ in range(60):
        file = dice.choice(files)
        data = file.read_bytes()
        at = dice.randrange(len(data))
        file.write_bytes(data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :])
        problems = opened(world).verify().problems
        try:
            assert world.state() == before, f"byte {at} of {file}: never a wrong answer"
            assert not problems or file.name.startswith("applied-"), "a mark, which counts keys"
        except HeadraceError as error:
            found += 1
            named = str(file.parent) in str(error) or "relies on its having" in str(error)
            assert problems and named, f"byte {at} of {file}: {error}"
        file.write_bytes(data)
    assert found > 10


def test_verify_names_a_server_that_has_lost_cells(monkeypatch: Any) -> None:
    world = World(kind="redis://host:6379/0?timeout=5s")
    monkeypatch.setattr(world, "opens", lambda kind: world.open)
    monkeypatch.setattr(MemoryBackend, "lost", lambda self: "9 cells were written, and 8 are there")
    driver = world.driver()
    for _ in range(7):
        driver.step()
    driver.close()
    (problem,) = opened(world).verify().problems
    assert problem.file == "cells in redis://host:6379/0?timeout=5s"
    assert problem.what == "9 cells were written, and 8 are there"


@pytest.mark.parametrize("kind", ["files", "log"])
def test_verify_notices_a_log_that_ends_before_its_state_store(kind: str, tmp_path: Path) -> None:
    world = World(kind=kind, path=tmp_path / kind)
    driver = world.driver()
    for _ in range(7):
        driver.step()
    driver._applier.proceed()
    driver.close()
    assert opened(world).verify().is_whole
    *_, last = sorted((tmp_path / kind / "log").rglob("0*0*"))
    last.unlink()
    (problem,) = opened(world).verify().problems
    assert "it has epoch 7, and the log of this checkpoint ends with epoch 6" in problem.what


def test_a_drop_says_that_cells_stay_in_the_state_store(tmp_path: Path) -> None:
    ran("files", tmp_path)
    place = str(tmp_path / "files")
    answer = CliRunner().invoke(cli, ["state", "drop", place, "Basket", "--all", "--yes"])
    assert answer.exit_code == 0 and "and those in files). The pipeline goes on" in answer.output
    assert "files is not made smaller" in answer.output


def test_verify_says_by_its_exit_status_that_a_state_store_is_damaged(tmp_path: Path) -> None:
    ran("files", tmp_path)
    for file in (tmp_path / "files" / "cells").rglob("*"):
        if file.is_file() and file.stat().st_size:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    answer = CliRunner().invoke(cli, ["state", "verify", str(tmp_path / "files")])
    assert answer.exit_code == 1 and "damaged: cells in files: computation" in answer.output


def test_verify_notices_every_key_that_is_missing(tmp_path: Path) -> None:
    world = ran("files", tmp_path)
    before, verified = world.state(), opened(world).verify()
    assert verified.is_whole and not verified.notes
    wrong = 0
    for file in sorted((tmp_path / "files" / "cells").rglob("cells/*/*/*/*")):
        file.rename(tmp_path / "aside")
        if world.state() != before:
            wrong += 1
            answer = CliRunner().invoke(cli, ["state", "verify", str(tmp_path / "files")])
            assert answer.exit_code == 1 and "keys were written up to epoch" in answer.output
        (tmp_path / "aside").rename(file)
    assert wrong >= 3


class Countless(MemoryBackend):
    """A store that does not count its cells."""

    def lost(self) -> str | None:
        return None


def test_verify_says_of_a_store_that_does_not_count_that_it_does_not(tmp_path: Path) -> None:
    world = ran("memory", tmp_path)
    found = Checkpoint(world.store, opens=lambda name: Countless(world.server, name)).verify()
    assert found.is_whole and "has lost are not noticed" in found.notes[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_pipeline_is_compacted_and_goes_on(kind: str, tmp_path: Path) -> None:
    world = ran(kind, tmp_path)
    before = world.state()
    opened(world).compact()
    assert world.state() == before
    world.cache = WorkerCache()
    world.run()
    whole = World(kind="segments")
    assert (whole.run(), whole.state()) == (sorted(map(repr, world.sink.rows)), world.state())


def test_what_needs_history_is_refused_by_name(tmp_path: Path) -> None:
    world = ran("log", tmp_path)
    with pytest.raises(IncompatibleState, match=r"comparing epochs .* state='log'.*no history"):
        list(opened(world).diff(5, 7))
    with pytest.raises(IncompatibleState, match=r"a past epoch .* state='log'.*no history"):
        Checkpoint(world.store, at=5)
    assert opened(world).epochs == []


class Ahead(MemoryBackend):
    """A store to which the next epoch is applied after every few reads."""

    def __init__(self, world: World, checkpoint: str) -> None:
        super().__init__(world.server, checkpoint)
        self.world, self.driver, self.steps = world, world.driver(), 0

    def read_fields(self, *given: Any) -> Any:
        if self.steps:
            self.steps -= 1
            self.driver.step()
        return super().read_fields(*given)


@pytest.mark.parametrize("steps", [1, 3, 20, 999])
def test_a_backup_is_one_epoch_although_the_store_goes_on(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "KEYS_AT_ONCE", 1)
    world = World(300)
    driver = world.driver()
    for _ in range(6):
        driver.step()
    driver.close()
    backend = Ahead(world, Checkpoint(world.store, opens=world.open).id)
    backend.steps = steps
    place, to = MemoryStore(), MemoryStore()
    report = Checkpoint(world.store, opens=lambda _: backend).backup(place)
    restore_backup(place, to)
    assert report.epoch == 6 + min(steps, 4), "an epoch for each of its four keys"
    expected = World(300, kind="segments")
    plain = expected.driver()
    while plain.ledger.epoch < report.epoch:
        assert isinstance(plain.step(), Run)
    assert dict(Checkpoint(to).scan("Basket")) == expected.state()
    again = World(300, kind="segments")
    again.store = to
    again.run()
    expected.run(plain)
    assert again.state() == expected.state(), "timers and positions are of that epoch, too"


def test_a_scan_is_one_epoch_although_the_store_goes_on() -> None:
    world = World(300)
    world.driver().step()
    backend = Ahead(world, Checkpoint(world.store, opens=world.open).id)
    backend.steps = 999
    found = dict(Checkpoint(world.store, opens=lambda _: backend).scan("Basket"))
    expected = World(300, kind="segments")
    plain = expected.driver()
    while plain.ledger.epoch < backend.driver.ledger.epoch:
        plain.step()
    assert found == expected.state()


def test_a_store_that_restarts_all_the_time_is_not_copied() -> None:
    world = World()
    world.driver().step()

    class Restarting(MemoryBackend):
        def read_fields(self, *given: Any) -> Any:
            world.server.restart()
            return super().read_fields(*given)

    checkpoint = Checkpoint(world.store, opens=lambda id: Restarting(world.server, id))
    with pytest.raises(StoreError, match=r"a backup to .* pause the pipeline"):
        checkpoint.backup(MemoryStore())


@pytest.mark.parametrize("kind", ["files", "log"])
def test_a_place_that_was_removed_meanwhile_is_looked_for_again(kind: str, tmp_path: Path) -> None:
    world = World(300, kind=kind, path=tmp_path)
    driver = world.driver()
    for _ in range(3):
        driver.step()
    early, places = opened(world), set()
    for number in range(40):
        driver.step()
        places.add(driver.ledger.applied.place)
        assert early.lookup("Basket", "key 1").state is not None
        assert number % 8 or opened(world).verify().problems == []
    assert len(places) > 2, "the store went to other places meanwhile"
    driver.close()
    shutil.rmtree(tmp_path / "cells")
    with pytest.raises(CorruptCheckpoint, match=r"its state store .* is missing.*put back a copy"):
        opened(world).get("Basket", "key 1")
    assert not opened(world).verify().is_whole


@pytest.mark.parametrize("act", ["get", "table"])
def test_what_a_commit_has_moved_while_it_was_read_is_read_again(
    act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    driver = world.driver()
    for _ in range(3):
        driver.step()
    found, read, failed = opened(world), MemoryBackend.read_fields, []

    def gone_at_first(self: MemoryBackend, *args: Any) -> Any:
        if not failed:
            failed.append(driver.step())
            raise PlaceGone("was removed: read again from there")
        return read(self, *args)

    monkeypatch.setattr(MemoryBackend, "read_fields", gone_at_first)
    if act == "get":
        assert found.lookup("Basket", "key 1").epoch == 4
    else:
        assert found.table("Basket").num_rows == len(world.state())
    assert failed


def test_a_store_that_was_put_back_is_not_copied() -> None:
    world = World()
    driver = world.driver()
    for _ in range(3):
        driver.step()
    copy = world.server.copy()
    for _ in range(5):
        driver.step()
    world.server.restart(copy)
    with pytest.raises(IncompatibleState, match="relies on its having epoch"):
        opened(world).backup(MemoryStore())
    [problem] = opened(world).verify().problems
    assert "relies on its having epoch" in problem.what


def test_a_store_that_restarts_during_a_restore_is_noticed() -> None:
    place = MemoryStore()
    back_up(on_segments()._store, place)
    server = MemoryServer()

    class Restarting(MemoryBackend):
        def raise_applied(self, epoch: int, run: str) -> bool:
            server.restart()
            return super().raise_applied(epoch, run)

    to = MemoryStore()
    with pytest.raises(StoreError, match="restarted during the restore"):
        restore_backup(place, to, None, StateChoice("memory"), lambda id: Restarting(server, id))
    assert "IDENTITY" not in to.list("")
    restore_backup(place, to, None, StateChoice("memory"), lambda id: MemoryBackend(server, id))
    found = Checkpoint(to, opens=lambda id: MemoryBackend(server, id))
    assert dict(found.scan("Basket")) == dict(on_segments().scan("Basket"))


def test_only_what_is_asked_for_is_copied_out_of_a_store() -> None:
    world = World()
    world.run()
    with standing_state(world.store, None, "a look", chosen=lambda _: [],
                        access=opened(world)._access) as (state, _):  # fmt: skip
        assert state.segments_in.list("") == []


def test_a_first_epoch_that_comes_during_a_backup_is_copied_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look finds no state store, because nothing was planned; the second one does."""
    world = World(kind="memory")
    driver = world.driver()
    recover = standing.recover

    def look(*given: Any) -> Any:
        found = recover(*given)
        while driver.ledger.epoch < 3:
            driver.step()
        return found

    monkeypatch.setattr(standing, "recover", look)
    with standing_state(world.store, None, "a look", opened(world)._access) as (state, _):
        assert state.epoch == 3
        assert not state.goes_on
        assert list(state.scan("Basket"))


def test_the_copy_of_a_store_takes_fewer_keys_at_once_where_values_are_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert standing.count_for(1000, 10) == 2000
    assert standing.count_for(1000, 20 * standing.BYTES_AT_ONCE) == 50
    assert standing.count_for(1, 20 * standing.BYTES_AT_ONCE) == 1
    world = World(300)
    world.run()
    expected = dict(Checkpoint(world.store, opens=world.open).scan("Basket"))
    monkeypatch.setattr(standing, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(standing, "FIRST_KEYS", 2)
    place, to = MemoryStore(), MemoryStore()
    Checkpoint(world.store, opens=world.open).backup(place)
    restore_backup(place, to)
    assert dict(Checkpoint(to).scan("Basket")) == expected and len(expected) > 2
