"""State through the harness: kept by key, checked, written only where it changed."""

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, IncompatibleState, InvalidPipeline, Map, UserCodeError, state, to
from headrace.state.segment import ENTRY, FIELD, Segment
from headrace.testing import CRASH, Harness


class Counter(Computation):
    n: int = state(0)
    seen: list[int] = state()

    def process_record(self, record, ctx):
        self.n += 1
        self.seen.append(record.timestamp)
        ctx.produce([ctx.key, self.n, self.seen])


class Toggle(Computation):
    on: bool = state(False)
    names: set[str] = state()
    counts: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.on = not self.on
        self.names ^= {"x"}
        if "x" in self.counts:
            del self.counts["x"]
        else:
            self.counts["x"] = 1


class Mapped(Computation):
    m: Map[int, list[int]] = state()

    def process_record(self, record, ctx):
        for i in record.value.get("set", ()):
            self.m[i] = [record.timestamp]
        for i in record.value.get("push", ()):
            self.m[i].append(record.timestamp)
        if "range" in record.value:
            ctx.produce(list(self.m.range(*record.value["range"])))


class Wrong(Computation):
    n: int = state(0)
    m: Map[str, int] = state()
    loose: list = state()

    def process_record(self, record, ctx):
        exec(record.value["do"], {"self": self})


class Parameters(Computation):
    total: int = state(0)

    def __init__(self, *, scale, rename=str.upper):
        self.scale, self.rename = scale, rename
        self.setups = []

    def setup(self):
        self.setups.append(1)
        self.ready = True

    def process_record(self, record, ctx):
        self.total += self.scale
        ctx.produce([self.total, self.rename("x"), len(self.setups), self.ready])


class AssignsParameter(Parameters):
    def process_record(self, record, ctx):
        self.scale = 5


class AssignsField(Computation):
    n: int = state(0)

    def __init__(self):
        self.n = 5

    def process_record(self, record, ctx): ...


class Averages(Computation):
    total: float = state(0.0)
    pair: tuple[int, ...] = state((0, 0))

    def process_record(self, record, ctx):
        ctx.produce([self.total, list(self.pair)])
        self.total = int(self.total) + 5
        self.pair = [*self.pair, 1]


class Aliased(Computation):
    first: list[int] = state()
    second: list[int] = state()

    def process_record(self, record, ctx):
        if not self.first:
            self.first = self.second = [record.timestamp]
        else:
            self.first.append(record.timestamp)
        ctx.produce([self.first, self.second])


class Forgetful(Computation):
    n: int = state(0)
    m: Map[str, int] = state()

    def process_record(self, record, ctx):
        if record.value.get("forget"):
            ctx.forget()
        if record.value.get("then", True):
            self.n += 1
            self.m[str(record.timestamp)] = 1
            ctx.set_timer(record.timestamp, at=1000)

    def process_timer(self, timer, ctx):
        ctx.produce([timer.tag, self.n, list(self.m)])


def segments(h):
    """The rows of the newest segment of C, as (kind, field, tombstone)."""
    h.settle()
    ledger = h._open().ledger
    rows = []
    for slot in ledger.slots["C"].values():
        for entry in slot.entries:
            if entry.last_epoch == ledger.epoch:
                batch = Segment.open(h._runtime.store, entry.segment, entry.at).batch
                kinds, fields = batch.column("kind").to_pylist(), batch.column("field").to_pylist()
                rows += list(zip(kinds, fields, batch.column("tombstone").to_pylist()))
    return sorted(rows)


def test_each_key_has_state_of_its_own_that_lasts():
    with Harness(one(Counter)) as h:
        h.send("in", at(1, "a"), at(2, "b"), at(3, "a"))
        h.send("in", at(4, "a"))
        assert h.read("out")[-1] == ["a", 3, [1, 3, 4]]
        assert h.state("C", "a").n == 3
        assert h.state("C", "b").seen == [2]
        assert h.state("C", "nobody") is None
        assert sorted(h.keys("C")) == ["a", "b"]


def test_keys_that_look_alike_are_apart():
    with Harness(one(Counter, key=lambda v: v["k"] if v["whole"] else (v["k"],))) as h:
        h.send("in", *(at(1, k, whole=whole) for k in (1, "1", b"1") for whole in (True, False)))
        assert [n for _, n, _ in h.read("out")] == [1] * 6


def test_a_change_in_place_is_seen_and_only_changed_fields_are_written():
    class Once(Counter):
        def process_record(self, record, ctx):
            self.seen.append(record.timestamp)

    with Harness(one(Once)) as h:
        h.send("in", at(1))
        h.send("in", at(2))
        assert h.state("C", "a").seen == [1, 2]
        assert segments(h) == [(FIELD, "seen", False)]


def test_what_equals_its_initial_value_is_not_stored_and_emptied_keys_vanish():
    with Harness(one(Toggle)) as h:
        h.send("in", at(1))
        assert h.keys("C") == ["a"]
        h.send("in", at(2))
        assert segments(h) == [
            (FIELD, "names", True),
            (FIELD, "on", True),
            (ENTRY, "counts", True),
        ]
        assert h.keys("C") == []
        assert h.state("C", "a") is None
        h.send("in", at(3), at(4))
        assert h.state("C", "a") is None


def test_one_changed_entry_of_many_writes_one_row():
    with Harness(one(Mapped)) as h:
        h.send("in", at(1, set=list(range(500))))
        h.send("in", at(2, push=[250]))
        assert segments(h) == [(ENTRY, "m", False)]
        h.send("in", at(3, range=[249, 252]))
        assert h.read("out") == [[[249, [1]], [250, [1, 2]], [251, [1]]]]
        assert segments(h) == []  # reading writes nothing


def test_a_map_is_walked_in_order_over_several_epochs():
    with Harness(one(Mapped)) as h:
        h.send("in", at(1, set=[5, -7]))
        h.send("in", at(2, set=[0, -300]))
        h.send("in", at(3, set=[300], range=[None, 300]))
        assert [k for k, _ in h.read("out")[0]] == [-300, -7, 0, 5]


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        ("self.n = 'x'", r"Wrong\.n is declared as int, but Expected `int`, got `str`"),
        ("self.n = True", "got `bool`"),
        ("self.n = 2**70", "cannot be stored"),
        ("self.m['a'] = 'x'", "declared as int"),
        ("self.m[1.5] = 1", "not float"),
        ("self.loose.append((1, 2))", "declare the exact type"),
        ("self.other = 1", "assigned other in a hook"),
        ("del self.n", "deleted n"),
        ("del self.n; self.other = 1", "assigned other"),
        ("self.m = {}", "is a Map"),
        ("self.m['a'] += 1", "KeyError"),
    ],
)
def test_what_cannot_be_stored_is_an_error_in_the_same_epoch(do, reason):
    with Harness(one(Wrong)) as h:
        h.send("in", at(1, "the key", do=do))
        with pytest.raises(UserCodeError, match=reason) as error:
            h.settle()
        assert "'C'" in str(error.value) and "the key" in str(error.value)
        assert h._open().ledger.epoch == 0


def test_parameters_are_there_also_functions_and_setup_ran_once():
    with Harness(one(Parameters(scale=3)), slots=3) as h:
        h.send("in", at(1, "a"), at(2, "b"), CRASH, at(3, "a"))
        assert sorted(h.read("out")) == [[3, "X", 1, True], [3, "X", 1, True], [6, "X", 1, True]]


def test_parameters_cannot_be_assigned_in_a_hook():
    with Harness(one(AssignsParameter(scale=1))) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match="assigned scale"):
            h.settle()


def test_state_cannot_be_assigned_by_the_constructor():
    with pytest.raises(InvalidPipeline, match="'n', which is state"):
        one(AssignsField)


def test_a_class_that_needs_parameters_says_so():
    with pytest.raises(InvalidPipeline, match="needs parameters"):
        one(Parameters)


def test_a_failing_setup_is_an_error_of_user_code():
    class Fails(Counter):
        def setup(self):
            raise OSError("no model")

    with Harness(one(Fails)) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match=r"setup\(\).*no model"):
            h.settle()


def test_a_warm_object_is_what_a_cold_one_would_be():
    # 5 in a float field, a list in a tuple field: the harness runs each epoch warm and cold.
    with Harness(one(Averages)) as h:
        for t in range(3):
            h.send("in", at(t))
        assert h.read("out") == [[0.0, [0, 0]], [5.0, [0, 0, 1]], [10.0, [0, 0, 1, 1]]]


def test_two_fields_that_share_an_object_part_at_the_end_of_the_epoch():
    with Harness(one(Aliased)) as h:
        h.send("in", at(1))
        h.send("in", at(2))
        assert h.read("out")[-1] == [[1, 2], [1]]


def test_forget_removes_state_and_timers_and_a_key_may_begin_again():
    with Harness(one(Forgetful)) as h:
        h.send("in", at(1), at(2))
        h.send("in", at(3, forget=True, then=False))
        assert h.keys("C") == []
        h.send("in", at(4), at(5, forget=True), at(6))
        assert h.state("C", "a").n == 2
        h.end()
        assert h.read("out") == [[5, 2, ["5", "6"]], [6, 2, ["5", "6"]]]


# Versions -----------------------------------------------------------------


class First(Computation):
    cents: int = state(0)
    old: str = state("")
    m: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.cents += 100
        self.old = "x"
        self.m["a"] = 1


class Second(Computation, version=2):
    euros: float = state(0.0)
    m: Map[str, int] = state()

    @classmethod
    def migrate(cls, fields, version):
        assert version == 1
        return {"euros": fields["cents"] / 100}

    def process_record(self, record, ctx):
        self.euros += 1
        ctx.produce([self.euros, list(self.m)])


class OtherType(First):
    cents: str = state("")

    def process_record(self, record, ctx): ...


class MapBecameField(First):
    m: int = state(0)
    cents: Map[str, int] = state()

    def process_record(self, record, ctx): ...


class OtherMap(First):
    m: Map[str, str] = state()

    def process_record(self, record, ctx):
        ctx.produce(list(self.m.values()))


def onward(h, computation, **options):
    """The same checkpoint under new code."""
    after = Harness(one(computation, **options))
    after._runtime.store = h._runtime.store
    after._sources["in"]._items = list(h._sources["in"]._items)
    after._sources["in"]._floors = list(h._sources["in"]._floors)
    for name, sink in h._outputs.items():
        if name in after._outputs:
            after._outputs[name]._high_water = sink._high_water
            after._outputs[name]._checkpoint = sink._checkpoint
    return after


@pytest.fixture
def written():
    with Harness(one(First)) as h:
        h.send("in", at(1, "a"), at(1, "b"))
    return h


def test_another_version_migrates_what_the_old_one_wrote(written):
    with onward(written, Second) as h:
        h.send("in", at(2))
        h.send("in", at(3))
        assert h.read("out") == [[2.0, ["a"]], [3.0, ["a"]]]
        assert vars(h.state("C", "a")).keys() == {"euros", "m"}
        assert h.state("C", "b").euros == 1.0


def test_an_older_version_does_not_touch_what_a_newer_one_wrote(written):
    with onward(written, Second) as h:
        h.send("in", at(2))
    with pytest.raises(IncompatibleState, match="version 2"), onward(h, First) as back:
        back.send("in", at(3))
        back.settle()


@pytest.mark.parametrize("changed", [OtherType, MapBecameField, OtherMap])
def test_another_type_without_another_version_is_incompatible(written, changed):
    refused = pytest.raises(IncompatibleState, match="computation 'C': field '(cents|m)'")
    with refused, onward(written, changed) as h:
        h.send("in", at(2))
        h.settle()


def test_incompatible_state_is_no_dead_letter(written):
    with pytest.raises(IncompatibleState), onward(written, OtherMap, errors=to("dead")) as h:
        h.send("in", at(2))
        h.settle()
