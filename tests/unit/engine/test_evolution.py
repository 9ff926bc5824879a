"""Code that cannot read the state does not start, and says which fields; other code goes on."""

from functools import partial

import pytest
from msgspec.structs import replace
from tests.unit.engine.support import driver_of, run
from tests.unit.engine.test_savepoints import ask

from headrace import Computation, Map, state
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.history.evolution import refuse_unreadable
from headrace.engine.history.recovery import recover
from headrace.engine.replay.restore import restore_savepoint
from headrace.errors import IncompatibleState
from headrace.log.epochlog import EpochLog
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.deploy.contract import contract_of
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.state.choice import StateChoice
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.worker.runtime import Runtime

VALUES = list(range(12))


class Base(Computation):
    n: int = state(0)
    text: str = state("")
    seen: Map[int, int] = state()

    def process_record(self, record, ctx):
        self.n += 1
        self.text = f"{record.value}"
        self.seen[record.value] = 1


def pipeline(cls: type[Computation], name: str = "C", aliases: tuple[str, ...] = ()):
    builder = PipelineBuilder("evolving")
    builder.read("values", memory(VALUES, timestamps=range(len(VALUES))))
    builder.compute(
        cls, inputs={"values": lambda value: value % 3}, outputs="out", name=name, aliases=aliases
    )
    builder.stream("out").write(memory_sink())
    return builder.freeze()


def begun(store: MemoryStore, epochs: int = 2) -> None:
    driver = driver_of(pipeline(Base), store)
    run(driver, epochs)
    driver.close()


class OtherField(Base):
    n: str = state("")
    text: bytes = state(b"")

    def process_record(self, record, ctx):
        self.n = "more"


class FieldBecameMap(Base):
    n: Map[str, int] = state()


class MapBecameField(Base):
    seen: dict[int, int] = state()


class OtherEntries(Base):
    seen: Map[int, str] = state()


class RaisedOnly(Base, version=2):
    """The version is raised, and nothing migrates."""

    n: list[int] = state()


class Fits(Base):
    """What is stored can be read with these types."""

    n: float = state(0.0)
    text: str | None = state("")


class Migrates(Base, version=2):
    n: list[int] = state()

    @classmethod
    def migrate(cls, fields, version):
        return {**fields, "n": [fields["n"]]}

    def process_record(self, record, ctx):
        self.n.append(record.value)
        ctx.produce([list(self.n), len(self.seen)])


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (OtherField, ["'n'", "'text'"]),
        (FieldBecameMap, ["'n'"]),
        (MapBecameField, ["'seen'"]),
        (OtherEntries, ["'seen'"]),
        (RaisedOnly, ["'n'"]),
    ],
)
def test_an_incompatible_change_is_refused_before_anything_is_written(code, fields):
    store = MemoryStore()
    begun(store)
    before = dict(store.files)
    with pytest.raises(IncompatibleState, match="cannot read the state") as error:
        driver_of(pipeline(code), store)
    assert all(f"computation 'C': field {field}" in str(error.value) for field in fields)
    assert "migrate()" in str(error.value)
    assert str(error.value).count("computation 'C'") == len(fields)
    assert store.files == before, "no generation, so the former code was not fenced"


@pytest.mark.parametrize("code", [OtherField, OtherEntries])
def test_what_only_a_state_store_has_is_looked_at(code):
    """Merges drop from segments what the store has: perhaps all that there is."""
    store, server = MemoryStore(), MemoryServer()
    driver = stored_driver(pipeline(Base), store, server)
    run(driver, 3)
    ledger, checkpoint = driver.ledger, driver.checkpoint
    driver.close()
    assert ledger.applied.epoch > 0
    for slots in ledger.slots.values():
        for number, slot in slots.items():
            slots[number] = replace(slot, entries=())
    opens = partial(MemoryBackend, server, checkpoint)

    def start(cls):
        topology = pipeline(cls)
        refuse_unreadable(store, ledger, contract_of(topology), topology, opens)

    with pytest.raises(IncompatibleState, match="and a stored value does not fit"):
        start(code)
    start(Fits)
    start(Migrates)


def test_a_start_over_a_state_store_is_refused_before_it_leads():
    store, server = MemoryStore(), MemoryServer()
    driver = stored_driver(pipeline(Base), store, server)
    run(driver, 3)
    driver.close()
    before = dict(store.files)
    with pytest.raises(IncompatibleState, match="'C': field 'n' is stored as"):
        stored_driver(pipeline(OtherField), store, server)
    assert store.files == before
    run(stored_driver(pipeline(Migrates), store, server))


def test_a_delta_that_was_only_written_and_is_lost_is_no_reason():
    """It is made again when somebody needs it. Types are judged by what is there."""
    store = MemoryStore()
    begun(store)
    ledger = recover(EpochLog(store), 1).ledger
    for slots in ledger.slots.values():
        for number, slot in slots.items():
            lost = (replace(e, segment=f"{e.segment}x", at=0, written=True) for e in slot.entries)
            slots[number] = replace(slot, entries=tuple(lost))
    topology = pipeline(OtherField)
    refuse_unreadable(store, ledger, contract_of(topology), topology)


def stored_driver(topology: Topology, store: MemoryStore, server: MemoryServer) -> Driver:
    """A driver whose state store is in memory."""
    opens = partial(MemoryBackend, server)
    runtime = Runtime(topology, store, WorkerCache(), opens)
    options = Options(
        slots=2, epoch_records=3, background=False, state=StateChoice("memory"), replace=True
    )
    code = fingerprint(topology.graph)
    setup = Setup(topology, code, store, LocalSubstrate(runtime), options, opens=opens)
    return Follower(setup).take_over()


def test_renaming_does_not_hide_an_incompatible_change():
    store = MemoryStore()
    begun(store)
    with pytest.raises(IncompatibleState, match="'D': field 'n' is stored as"):
        driver_of(pipeline(OtherField, "D", aliases=("C",)), store)


def test_a_lower_version_is_refused_and_the_newer_code_goes_on():
    store = MemoryStore()
    begun(store)
    driver = driver_of(pipeline(Migrates), store)
    run(driver, 1)
    driver.close()
    with pytest.raises(IncompatibleState, match="state of version 2, and this code is version 1"):
        driver_of(pipeline(Base), store)
    run(driver_of(pipeline(Migrates), store))


@pytest.mark.parametrize("code", [Fits, Migrates])
def test_code_that_reads_the_state_goes_on(code):
    store = MemoryStore()
    begun(store)
    driver = driver_of(pipeline(code), store)
    run(driver)
    assert driver.ledger.counters.records == len(VALUES)


def test_without_state_any_type_may_change():
    store = MemoryStore()
    driver_of(pipeline(Base), store).close()
    run(driver_of(pipeline(OtherField), store))


def test_a_savepoint_of_one_version_starts_the_next():
    store, to = MemoryStore(), MemoryStore()
    driver = driver_of(pipeline(Base), store)
    run(driver, 2)
    ask(driver, "savepoint", "before")
    driver.close()
    restore_savepoint(store, "before", to)
    with pytest.raises(IncompatibleState, match="field 'n' is stored as"):
        driver_of(pipeline(OtherField), to)
    topology = pipeline(Migrates)
    driver = driver_of(topology, to)
    run(driver)
    rows = [row for outlet in topology.graph.outlets.values() for row in outlet.sink.rows]
    last = {row[0][-1] % 3: row for row in rows}
    assert sorted(row[1] for row in last.values()) == [2, 2, 2], "maps were kept"
    assert all(row[0][0] == 2 for row in last.values()), "two records were counted before"
