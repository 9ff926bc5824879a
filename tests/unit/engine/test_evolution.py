"""Code that cannot read the state does not start, and says which fields; other code goes on."""

import enum
from dataclasses import dataclass
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.engine.support import driver_of, run
from tests.unit.engine.test_savepoints import ask

from headrace import Computation, Map, session, state, tumbling
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.history import evolution
from headrace.engine.history.evolution import refuse_unreadable
from headrace.engine.history.recovery import recover
from headrace.engine.replay.restore import restore_savepoint
from headrace.engine.upkeep.applier import Applier
from headrace.errors import IncompatibleState
from headrace.log.epochlog import EpochLog
from headrace.model.field_shapes import shape_of
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.deploy.comparison import Facts
from headrace.plan.deploy.contract import contract_of
from headrace.plan.deploy.fields import ChangedField, changed_fields, other_windows
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.plan.state.choice import StateChoice
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.state.backends.memory import MemoryBackend, MemoryServer
from headrace.state.cache import WorkerCache
from headrace.store.memory import MemoryStore
from headrace.system import System
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


def begun(store: MemoryStore, epochs: int = 2, cls: type[Computation] = Base) -> None:
    driver = driver_of(pipeline(cls), store)
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


class Mixed(Computation):
    x: int | str = state(0)

    def process_record(self, record, ctx):
        self.x = record.value if record.value else "old"


class Numbers(Computation):
    x: int = state(0)

    def process_record(self, record, ctx):
        self.x = record.value


class More(Mixed):
    x: int | str | None = state(0)


def test_one_value_that_does_not_fit_is_found_among_ever_so_many(monkeypatch):
    def many(cls):
        builder = PipelineBuilder("evolving")
        builder.read("values", memory(range(18_000), timestamps=range(18_000)))
        builder.compute(cls, inputs={"values": lambda value: value}, name="C")
        return builder.freeze()

    store = MemoryStore(Ticking())
    driver = driver_of(many(Mixed), store, epoch_records=6_000)
    run(driver, 1)  # it has the text
    run(driver)
    driver.close()
    before, told = dict(store.files), []
    with pytest.raises(IncompatibleState, match="'x' is stored as .* a stored value does not fit"):
        driver_of(many(Numbers), store, on_notice=told.append)
    assert store.files == before
    assert told[0].kind == "reading" and "10,000 so far" in told[0].text
    monkeypatch.setattr(evolution, "stored_values", None)  # a wider type needs none of them
    run(driver_of(many(More), store), 1)


@dataclass
class Order:
    amount: int = 0
    paid: bool = False


class Line(msgspec.Struct):
    name: str
    count: int = 0


class Shape(enum.Enum):
    ROUND = "round"
    FLAT = "flat"


class Nested(Base):
    n: Order = state(Order())
    text: list[Shape] = state()
    seen: Map[int, Line] = state()

    def process_record(self, record, ctx):
        self.n = Order(record.value)
        self.text = [Shape.FLAT]
        self.seen[record.value] = Line(f"{record.value}")


@dataclass
class OrderOfText:
    amount: str = ""


class LineWithMore(msgspec.Struct):
    name: str
    count: int
    price: float
    more: str | None = None


class RoundShape(enum.Enum):
    ROUND = "round"


class OrderWithMore(msgspec.Struct):
    amount: float
    paid: bool = False
    more: str | None = None


for _other, _name in ((OrderOfText, "Order"), (LineWithMore, "Line"), (RoundShape, "Shape"),
                      (OrderWithMore, "Order")):  # fmt: skip
    _other.__name__ = _other.__qualname__ = _name


class OtherClasses(Nested):
    """The declared types have the same names as before."""

    n: OrderOfText = state(OrderOfText())
    text: list[RoundShape] = state()
    seen: Map[int, LineWithMore] = state()


class ClassesThatFit(Nested):
    n: OrderWithMore = state(OrderWithMore(0))


class TextKeys(Nested):
    seen: Map[str, Line] = state()


@pytest.mark.parametrize(
    ("code", "fields"), [(OtherClasses, ["n", "seen", "text"]), (TextKeys, ["seen"])]
)
def test_a_class_with_other_fields_is_refused_by_name_before_anything_is_written(code, fields):
    store = MemoryStore()
    begun(store, cls=Nested)
    before = dict(store.files)
    with pytest.raises(IncompatibleState, match="cannot read the state") as error:
        driver_of(pipeline(code), store)
    said = str(error.value)
    assert [f for f in ("n", "seen", "text") if f"'C': field {f!r} is stored" in said] == fields
    assert "is stored as Map[int, Line]" in said
    assert store.files == before


def test_a_class_that_reads_what_is_stored_goes_on():
    store = MemoryStore()
    begun(store, cls=Nested)
    run(driver_of(pipeline(ClassesThatFit), store))


def test_what_a_type_consists_of_is_told_shortly():
    many = [enum.Enum("Many", {f"V{n}": n for n in range(last)}) for last in (5000, 5001)]
    one, other = map(shape_of, many)
    assert one != other and len(one) < 2100
    assert shape_of(dict[str, Line | None]) == "Line(name: str, count: int =)"
    assert shape_of(dict[str, int]) == ""


def test_a_contract_that_does_not_tell_of_classes_refuses_nothing():
    """An older release has written it."""
    found = contract_of(pipeline(Nested))
    older = {n: replace(each, shapes={}) for n, each in found.computations.items()}
    facts = Facts(frozenset({"C"}))
    now = contract_of(pipeline(OtherClasses))
    assert [each.field for each in changed_fields(found, now, facts)] == ["n", "text", "seen"]
    assert not list(changed_fields(replace(found, computations=older), now, facts))


class Ticking(System):
    """Each look at its clock takes some seconds."""

    seconds = 0.0

    def uptime_s(self) -> float:
        self.seconds += 6.0
        return self.seconds


@pytest.mark.parametrize(
    ("was", "now", "adds"),
    [
        ("<class 'int'>", "int | None", True),
        ("int | str", "str | None | int", True),
        ("int | str", "int", False),
        ("int", "float", False),
        ("list[int]", "list[int] | None", False),
    ],
)
def test_only_plain_types_are_believed_to_add_alternatives(was, now, adds):
    assert ChangedField("C", "C", "x", was, now, False).only_adds is adds


def windows(window, times, **options):
    builder = PipelineBuilder("evolving")
    hits = [{"k": n % 2} for n in times]
    builder.read("hits", memory(hits, timestamps=[n * 10**6 for n in times]))
    counted = builder.stream("hits").key_by("k").window(window, **options).count()
    counted.named("counted").write(memory_sink())
    return builder.freeze()


@pytest.mark.parametrize("other", [tumbling("1m"), session("20s")])
def test_open_windows_of_another_window_are_refused_before_anything_is_written(other):
    store = MemoryStore()
    driver = driver_of(windows(tumbling("20s"), range(30)), store, epoch_records=10)
    run(driver, 2)
    driver.close()
    before = dict(store.files)
    with pytest.raises(IncompatibleState, match="'counted': windows are open .* another window"):
        driver_of(windows(other, range(30)), store)
    assert store.files == before
    run(driver_of(windows(tumbling("20s"), range(30)), store))
    run(driver_of(windows(other, range(30)), store))  # they have closed at the end


def test_windows_that_have_closed_are_no_reason_though_the_store_still_has_them(monkeypatch):
    """The last epochs may be in segments only: the store was slow, and then the driver died."""
    store, server, late = MemoryStore(), MemoryServer(), Applier.proceed
    driver = stored_driver(windows(tumbling("20s"), range(30)), store, server)
    run(driver, 1)
    assert driver.ledger.applied.epoch < driver.ledger.epoch
    with monkeypatch.context() as slow:
        slow.setattr(Applier, "proceed", lambda self: late(self) if self._is_behind() else None)
        run(driver)
        driver.close()
    run(stored_driver(windows(tumbling("1m"), range(30)), store, server))


def test_open_windows_are_judged_by_what_has_made_them_and_not_by_a_name():
    store, topology = MemoryStore(), windows(tumbling("20s"), range(30))
    driver = driver_of(topology, store, epoch_records=10)
    run(driver, 2)
    found = driver.ledger.code.contract
    other = {
        name: replace(each, checksum=f"Other{each.checksum}") for name, each in found.keyed.items()
    }
    driver.ledger.code = replace(driver.ledger.code, contract=replace(found, computations=other))
    assert list(other_windows(found, driver.ledger.code.contract, Facts(frozenset(other))))
    refuse_unreadable(store, driver.ledger, found, topology)


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
