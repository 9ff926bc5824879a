"""Joins as people write them: when rows come out, what they look like, what is refused."""

from typing import Any

import msgspec
import pytest

from headrace import (
    Computation,
    InvalidPipeline,
    InvalidRecord,
    Pipeline,
    UserCodeError,
    agg,
    hopping,
    interval,
    same_window,
    session,
    sources,
    to,
    tumbling,
)
from headrace.testing import CRASH, Harness

SECOND = 1_000_000


class Order(msgspec.Struct):
    id: str
    t: int
    cents: int


class Payment(msgspec.Struct):
    id: str
    t: int
    paid: int


def streams(*schemas: Any) -> tuple[Pipeline, Any, Any]:
    p = Pipeline("shop")
    given = schemas or (None, None)
    orders = p.read("orders", sources.memory([], timestamp="t"), schema=given[0])
    payments = p.read("payments", sources.memory([], timestamp="t"), schema=given[1])
    return p, orders.key_by("id"), payments.key_by("id")


def order(id: str, seconds: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "t": seconds * SECOND, **more}


SELECT = {"id": "left.id", "at": "left.t", "paid": "right.t"}


def test_early_rows_wait_for_their_partner_through_epochs_and_crashes() -> None:
    p, orders, payments = streams()
    orders.join(payments, within=interval("-10s", "10s"), select=SELECT).named("paid")
    with Harness(p) as h:
        h.send("payments", order("o1", 5), CRASH)
        h.send("orders", order("o1", 9), CRASH, order("o2", 10))
        h.send("payments", order("o2", 11))
        assert sorted((v["id"], v["paid"] // SECOND) for v in h.read("paid")) == [
            ("o1", 5),
            ("o2", 11),
        ]
        assert [t for _, t in h.records("paid")] == [9 * SECOND, 11 * SECOND]


def test_an_unmatched_row_comes_out_when_its_last_partner_is_past_and_its_state_goes() -> None:
    p, orders, payments = streams()
    orders.join(payments, within=interval("0s", "10s"), how="full", select=SELECT).named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 100))
        h.send("payments", order("p1", 100))
        h.advance("10s")
        assert [v["id"] for v in h.read("out")] == [None], "the payment has no order before it"
        assert h.keys("out") == ["o1"]
        h.advance("1us")
        assert h.records("out")[1] == (
            {"id": "o1", "at": 100 * SECOND, "paid": None},
            100 * SECOND,
        )
        assert h.keys("out") == []


def test_a_matched_row_goes_too_when_nobody_can_match_it_any_more() -> None:
    p, orders, payments = streams()
    orders.join(payments, within=interval("0s", "8s"), select=SELECT).named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 100))
        h.send("payments", order("o1", 101))
        h.advance("10s")
        assert len(h.read("out")) == 1
        assert h.keys("out") == []


def test_rows_without_select_have_the_columns_of_both_sides() -> None:
    p, orders, payments = streams()
    fewer = payments.select("id", "paid").key_by("id")
    orders.join(fewer, how="full").named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 1), order("o2", 2))
        h.send("payments", order("o1", 3, paid=7), order("o3", 4, paid=8))
        h.end()
        found = sorted(h.records("out"), key=lambda r: r[0]["id"])
    assert found == [
        ({"id": "o1", "t": SECOND, "paid": 7}, 3 * SECOND),
        ({"id": "o2", "t": 2 * SECOND, "paid": None}, 2 * SECOND),
        ({"id": "o3", "paid": 8}, 4 * SECOND),
    ]


def test_a_clash_of_columns_is_found_at_build_with_schemas_and_at_the_first_pair_without() -> None:
    _, orders, payments = streams(Order, Payment)
    with pytest.raises(InvalidPipeline, match=r"both sides have a column 't'.*select="):
        orders.join(payments)
    with pytest.raises(InvalidPipeline, match="'cent'.*did you mean 'cents'"):
        orders.join(payments, select={"cents": "left.cent"})
    p, orders, payments = streams()
    orders.join(payments)
    with pytest.raises(UserCodeError, match="both sides have a column 't'"):
        with Harness(p) as h:
            h.send("orders", order("o1", 1))
            h.send("payments", order("o1", 1))


def test_typed_streams_join_and_a_function_can_make_the_rows() -> None:
    p, orders, payments = streams(Order, Payment)
    orders.join(
        payments,
        within=interval("0s", "1h"),
        select=lambda left, right: {"open": left["cents"] - right["paid"]},
    ).named("out")
    with Harness(p) as h:
        h.send("orders", Order("o1", 1, 500))
        h.send("payments", Payment("o1", 2, 300))
        assert h.read("out") == [{"open": 200}]


def test_a_stream_can_be_joined_with_itself() -> None:
    p = Pipeline("pairs")
    keyed = p.read("in", sources.memory([], timestamp="t")).key_by("id")
    keyed.join(keyed, within=interval("1us", "5s"), select=SELECT).named("out")
    with Harness(p) as h:
        h.send("in", order("a", 1), order("a", 3), order("b", 4))
        h.end()
        assert [(v["at"] // SECOND, v["paid"] // SECOND) for v in h.read("out")] == [(1, 3)]


def test_rows_of_the_same_window_join() -> None:
    p, orders, payments = streams()
    sums = [
        s.window(tumbling("10s")).aggregate(**{name: agg.count()})
        for s, name in ((orders, "orders"), (payments, "payments"))
    ]
    sums[0].join(sums[1], window=same_window(), how="full").named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 1), order("o1", 2), order("o1", 11))
        h.send("payments", order("o1", 3), order("o1", 25))
        h.advance("1h")
        found = sorted(h.read("out"), key=lambda v: v["window_start"])
    assert [(v["window_start"] // SECOND, v["orders"], v["payments"]) for v in found] == [
        (0, 2, 1),
        (10, 1, None),
        (20, None, 1),
    ]


def test_a_window_join_keeps_its_grace_and_sends_later_records_aside() -> None:
    p, orders, payments = streams()
    orders.join(
        payments, window=hopping("10s", every="10s"), grace="5s", late=to("late"), select=SELECT
    ).named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 1))
        h.send("payments", order("x", 1))
        h.advance("11s")
        h.send("payments", order("o1", 2))
        assert [v["id"] for v in h.read("out")] == ["o1"]
        h.advance("10s")
        h.send("payments", order("o1", 3))
        assert [v["t"] // SECOND for v in h.read("late")] == [3]
        assert h.counts["out.late"] == 1


def test_late_records_of_an_interval_join_are_dropped_and_counted() -> None:
    p, orders, payments = streams()
    orders.join(payments, within=interval("0s", "1s"), select=SELECT).named("out")
    with Harness(p) as h:
        h.send("orders", order("o1", 1))
        h.send("payments", order("x", 1))
        h.advance("1h")
        h.send("payments", order("o1", 1))
        assert h.read("out") == []
        assert h.counts["late"] == 1


def test_an_as_of_join_sees_the_table_as_it_was() -> None:
    p, orders, prices = streams()
    orders.join_asof(prices, select={"t": "left.t", "price": "right.price"}).named("out")
    with Harness(p) as h:
        h.send("payments", order("a", 10, price=1), order("a", 20, price=2))
        h.send("orders", order("a", 20), order("a", 19), order("a", 9))
        h.end()
        assert [(v["t"] // SECOND, v["price"]) for v in h.read("out")] == [
            (9, None), (19, 1), (20, 2),
        ]  # fmt: skip


def test_a_key_that_is_a_function_becomes_a_column() -> None:
    p = Pipeline("shop")
    left = p.read("l", sources.memory([], timestamp="t")).key_by(who=lambda v: v["a"].lower())
    right = p.read("r", sources.memory([], timestamp="s")).key_by(who=lambda v: v["b"].lower())
    left.join(right).named("out").count().named("counts")
    with Harness(p) as h:
        h.send("l", {"t": 1, "a": "X"})
        h.send("r", {"s": 1, "b": "x"})
        assert h.read("out") == [{"who": "x", "t": 1, "a": "X", "s": 1, "b": "x"}]
        assert h.read("counts") == [{"who": "x", "count": 1}]


def test_what_cannot_be_joined_is_refused() -> None:
    p, orders, payments = streams()
    with pytest.raises(InvalidPipeline, match="needs a key"):
        orders.join(p.stream("payments"))
    with pytest.raises(InvalidPipeline, match="not both"):
        orders.join(payments, within=interval("0s", "1s"), window=tumbling("1s"))
    with pytest.raises(InvalidPipeline, match="not session"):
        orders.join(payments, window=session("1s"))
    with pytest.raises(InvalidPipeline, match='"inner", "left", "full"'):
        orders.join(payments, how="outer")
    with pytest.raises(InvalidPipeline, match="never equal"):
        orders.join(payments.key_by("id", "t"))
    with pytest.raises(InvalidPipeline, match="lies above"):
        interval("5s", "-5s")
    with pytest.raises(InvalidPipeline, match='"left.column" or "right.column"'):
        orders.join(payments, select={"a": "t"})


def test_a_look_up_is_a_step_of_a_stream() -> None:
    p, orders, _ = streams(Order, Payment)
    orders.lookup({"o1": {"name": "tea"}}).filter(lambda v: v["name"]).named("out")
    with Harness(p) as h:
        h.send("orders", Order("o1", 1, 5), Order("o2", 2, 6))
        assert h.read("out") == [{"id": "o1", "t": 1, "cents": 5, "name": "tea"}]


def test_an_unmatched_row_that_waits_is_not_late_downstream() -> None:
    class Sees(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce(record.late)

    p, orders, payments = streams()
    orders.join(payments, within=interval("0s", "10s"), how="left", select=SELECT).named("out")
    p.compute(Sees, inputs={"out": ()}, outputs="seen")
    with Harness(p) as h:
        h.send("orders", order("o1", 100))
        h.send("payments", order("p1", 100))
        h.advance("9s")
        h.advance("2s")
        assert h.read("seen") == [False]


@pytest.mark.parametrize("window", [tumbling("10s"), hopping("10s", every="5s"), session("5s")])
def test_a_window_that_the_end_closes_is_not_late_for_a_join_that_has_seen_later_times(
    window: Any,
) -> None:
    p = Pipeline("windows")
    rows = {"orders": [1, 2, 11], "payments": [3, 25]}
    counted = {}
    for name in rows:
        stream = p.read(name, sources.memory([], timestamp="t"))
        counted[name] = stream.key_by("k").window(window).count(f"{name}_n")
    left, right = counted["orders"], counted["payments"]
    left.join(right, window=same_window(), how="full").named("both")
    with Harness(p) as h:
        for name, seconds in rows.items():
            h.send(name, *[{"k": 1, "t": s * SECOND} for s in seconds])
        h.end()
        both = h.read("both")
        assert h.counts.get("late", 0) == 0
    for name, seconds in rows.items():
        found = sum(row.get(f"{name}_n") or 0 for row in both)
        assert found == len(seconds) * (2 if window.overlapping else 1)


def test_late_records_that_go_aside_are_counted_once() -> None:
    p, orders, _ = streams()
    orders.window(tumbling("10s"), grace="5s", late=to("aside")).count().named("counted")
    with Harness(p) as h:
        h.send("orders", order("a", 12))
        h.send("orders", order("a", 3))  # late, but its window is open
        h.send("orders", order("a", 30))
        h.send("orders", order("a", 4))  # too late
        h.end()
        assert [v["t"] // SECOND for v in h.read("aside")] == [4]
        assert h.counts["late"] == 2


def test_a_selection_without_the_key_cannot_be_used_by_key() -> None:
    _, orders, payments = streams()
    joined = orders.join(payments, select={"at": "left.t"})
    with pytest.raises(InvalidPipeline, match="from the column 'id'.*has only: at"):
        joined.count()
    joined.key_by("at").count()


@pytest.mark.parametrize("select", [lambda left, right: {"n": 1}, {"id": "right.id"}])
def test_a_joined_record_without_the_key_names_the_join_the_key_and_the_next_step(
    select: Any,
) -> None:
    p, orders, payments = streams()
    joined = orders.join(payments, how="left", select=select)
    joined.count().named("next")
    wanted = r"'next' cannot take a key \('id'\).*'orders.join' makes.*select=.*before 'next'"
    with pytest.raises(InvalidRecord, match=wanted):
        with Harness(p) as h:
            h.send("orders", order("o", 1))
            h.end()


@pytest.mark.parametrize(
    "options", [{}, {"within": interval("0s", "2s")}, {"window": tumbling("10s")}]
)
@pytest.mark.parametrize("schemas", [(), (Order, None)])
def test_an_unmatched_row_looks_the_same_however_the_input_is_cut(
    options: Any, schemas: Any
) -> None:
    def found(cuts: list[list[dict[str, Any]]]) -> list[Any]:
        p, orders, payments = streams(*schemas)
        fewer = payments.map(lambda v: {"id": v["id"], "paid": v["paid"]}).key_by("id")
        orders.join(fewer, how="full", **options).named("out")
        with Harness(p, slots=1) as h:
            for rows in cuts:
                for stream, column in (("orders", "cents"), ("payments", "paid")):
                    h.send(stream, *(row for row in rows if column in row))
            h.end()
            return sorted(map(repr, h.read("out")))

    rows = [order("o1", 1, cents=1), order("o2", 2, paid=7), order("o1", 2, paid=8),
            order("o3", 2, cents=2), order("o4", 2, paid=9)]  # fmt: skip
    assert found([rows]) == found([[row] for row in rows]) == found([rows[:3], rows[3:]])
    alone = [row for row in found([rows]) if "'o4'" in row or "'o3'" in row]
    # Known columns are null. Those that only records show are not there.
    assert ["'cents': None" in row for row in alone if "'o4'" in row] == [bool(schemas)]
    assert ["'paid': None" in row for row in alone if "'o3'" in row] == [False]


MIXED = [{"n": 1}, {"n": 1.5, "more": [1]}, {"n": "x"}, {"n": 2**70 % 2**64}, {"n": {"a": None}}]


@pytest.mark.parametrize(
    "options", [{}, {"within": interval("-1h", "1h")}, {"window": tumbling("1h")}]
)
def test_records_of_all_forms_join_and_keep_them(options: Any) -> None:
    p, orders, payments = streams()
    orders.join(payments, select=lambda left, right: [left["n"], right["n"]], **options).named(
        "out"
    )
    orders.join(payments.select("id", m="n").key_by("id"), **options).named("columns")
    with Harness(p) as h:
        for i, row in enumerate(MIXED):
            h.send("orders", order("a", i, **row), order("a", i, **MIXED[0]))
            h.send("payments", order("a", i, **row), CRASH)
        h.end()
        made = h.read("out")
        columns = h.read("columns")
    left = [n for row in MIXED for n in (row["n"], 1)]
    expected = [[a, row["n"]] for a in left for row in MIXED]
    assert sorted(map(repr, made)) == sorted(map(repr, expected))
    assert sorted(repr([v["n"], v["m"]]) for v in columns) == sorted(map(repr, expected))


@pytest.mark.parametrize(
    "options",
    [{}, {"within": interval("0s", "9s")}, {"window": tumbling("10s"), "late": to("late")}],
)
def test_feedback_into_a_join_is_never_late_not_even_after_the_end(options: Any) -> None:
    class Again(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            if not record.value["again"]:
                ctx.produce({"id": record.value["id"] + "!", "again": 1}, to="again")

    p, orders, _ = streams()
    again = p.stream("again", feedback=True).key_by("id")
    select = {"id": "left.id", "again": "right.again", "other": "right.id"}
    orders.join(again, how="full", select=select, **options).named("out")
    p.compute(Again, inputs={"out": ()}, outputs=["again"])
    with Harness(p) as h:
        h.send("payments", order("x", 15))
        h.send("orders", order("o", 15))
        h.end()  # only now o comes out, alone, and its answer goes back
        (_, first), (answer, second) = h.records("out")
        assert answer["other"] == "o!"
        assert first == second, "a time that is a time"
        assert h.counts["late"] == 0
        assert h.keys("out") == []


@pytest.mark.parametrize("select", [SELECT, lambda left, right: [left["t"], right["t"]]])
def test_an_epoch_of_a_join_can_be_replayed(select: Any) -> None:
    p, orders, payments = streams()
    orders.join(payments, within=interval("-10s", "10s"), select=select).named("out")
    with Harness(p) as h:
        h.send("orders", order("a", 1))
        h.send("payments", order("a", 2))
        assert len(h.read("out")) == 1
        replay = h.replay(h.epoch, computation="out")
        assert [len(call.produced) for call in replay.calls if call.produced] == [1]
        assert replay.equal


@pytest.mark.parametrize(
    "options",
    [{"how": "full"}, {"within": interval("0s", "9s"), "how": "full"}, {"window": tumbling("1h")}],
)
def test_a_pair_whose_function_fails_goes_aside_and_no_other_pair_does(options: Any) -> None:
    def ratio(left: Any, right: Any) -> Any:
        seen = left.pop("seen")
        seen.append("changed")  # what it is given is its own
        return {"id": left["id"], "ratio": left["cents"] // right["paid"]}

    p, orders, payments = streams()
    orders.join(payments, select=ratio, errors=to("dead"), **options).named("out")
    with Harness(p) as h:
        h.send("orders", order("a", 1, cents=6, seen=[]), order("b", 1, cents=6, seen=[]))
        h.send("payments", order("a", 2, paid=3), order("a", 2, paid=0), CRASH)
        h.send("payments", order("b", 2, paid=2), order("a", 3, paid=2))
        assert sorted((v["id"], v["ratio"]) for v in h.read("out")) == [
            ("a", 2), ("a", 3), ("b", 3),
        ]  # fmt: skip
        (letter,) = h.read("dead")
        h.end()
        assert len(h.read("dead")) == 1, "all rows have met a partner"
    assert letter["key"] == "a"
    assert letter["computation"] == "out"
    assert letter["value"] == {
        "left": order("a", 1, cents=6, seen=[]),
        "right": order("a", 2, paid=0),
    }
    assert letter["timestamp"] in (2 * SECOND, 3600 * SECOND - 1)
    assert letter["error"].startswith("ZeroDivisionError")
    assert "ratio" in letter["traceback"]


def test_a_pair_that_fails_names_its_key_and_rows_where_nothing_takes_it() -> None:
    p, orders, payments = streams()
    orders.join(payments, select=lambda left, right: left["nothing"])
    with pytest.raises(
        UserCodeError, match=r"(?s)key 'a', {'left': .*KeyError.*errors=to"
    ) as raised:
        with Harness(p) as h:
            h.send("orders", order("a", 1))
            h.send("payments", order("a", 2))
    assert "orders.join" in str(raised.value)


def test_a_joined_value_that_cannot_be_stored_and_a_column_that_is_not_there_go_aside() -> None:
    p, orders, payments = streams()
    orders.join(payments, select=lambda left, right: 1j, errors=to("dead"))
    orders.join(payments, select={"n": "right.nn"}, errors=to("dead")).named("chosen")
    with Harness(p) as h:
        h.send("orders", order("a", 1))
        h.send("payments", order("a", 2, n=1), order("a", 2, nn=2))
        errors = sorted(letter["error"] for letter in h.read("dead"))
        assert [v["n"] for v in h.read("chosen")] == [2]
    assert len(errors) == 3
    assert "select= names right.nn" in errors[0]
    assert "cannot be encoded" in errors[1]


def test_windows_of_the_records_that_are_not_the_windows_of_the_join_are_a_clash() -> None:
    def counted(size: str) -> Any:
        p, orders, payments = streams()
        counts = orders.window(tumbling("10s")).count("n")
        counts.join(payments, window=tumbling(size)).named("out")
        with Harness(p) as h:
            h.send("orders", order("a", 1))
            h.send("payments", order("a", 2))
            h.advance("1h")
            return h.read("out")

    assert [v["window_end"] for v in counted("10s")] == [10 * SECOND]
    with pytest.raises(UserCodeError, match="of another window.*select="):
        counted("1m")


def test_a_stream_is_joined_with_itself_twice() -> None:
    p = Pipeline("pairs")
    keyed = p.read("in", sources.memory([], timestamp="t")).key_by("id")
    keyed.join(keyed, within=interval("1us", "5s"), select=SELECT).named("one")
    keyed.join(keyed, within=interval("2s", "5s"), select=SELECT).named("two")
    keyed.join_asof(keyed, select=SELECT).named("three")
    with Harness(p) as h:
        h.send("in", order("a", 1), order("a", 2), order("a", 4))
        h.end()
        assert [len(h.read(name)) for name in ("one", "two", "three")] == [3, 2, 3]


def test_mistakes_in_the_options_of_a_join_are_told_when_it_is_built() -> None:
    p, orders, payments = streams()
    select: Any
    for select in ({}, ["id"], "left.id"):
        with pytest.raises(InvalidPipeline, match="select= is a mapping"):
            orders.join(payments, select=select)
    with pytest.raises(InvalidPipeline, match="something else in select="):
        orders.join(payments, window=tumbling("1s"), select={"window_end": "left.t"})
    for late in ("process", "keep"):
        with pytest.raises(InvalidPipeline, match="late= of a window join"):
            orders.join(payments, window=tumbling("1s"), late=late)
    with pytest.raises(InvalidPipeline, match="a window is made like"):
        orders.join(payments, window="1s")
    with pytest.raises(InvalidPipeline, match="is by key"):
        orders.join(payments, on="id")
    with pytest.raises(InvalidPipeline, match="another pipeline"):
        orders.join(streams()[2])
    with pytest.raises(ValueError, match="longer than time itself"):
        interval("0s", "106000000d")
    orders.join(payments, select=SELECT).named("out")
    p.validate()  # nothing is left of what was refused


def test_keys_of_different_types_are_refused_where_schemas_tell_and_never_meet_otherwise() -> None:
    class Numbered(msgspec.Struct):
        id: int
        t: int

    _, orders, payments = streams(Order, Numbered)
    with pytest.raises(InvalidPipeline, match="'id' of 'orders' is string.*is int64.*never equal"):
        orders.join(payments, select=SELECT)
    p, orders, payments = streams()
    orders.join(payments, select=SELECT).named("out")
    with Harness(p) as h:
        h.send("orders", order("1", 1))
        h.send("payments", {"id": 1, "t": SECOND})
        h.end()
        assert h.read("out") == []


def test_key_columns_of_one_name_in_one_place_are_one_column() -> None:
    p, orders, payments = streams()
    left = orders.select("id", "x").key_by("id", "x")
    left.join(payments.select("id", "y", "z").key_by("id", "y"), how="full").named("out")
    with Harness(p) as h:
        h.send("orders", order("a", 1, x=1))
        h.send("payments", order("a", 2, y=1, z=3), order("b", 2, y=1, z=4))
        h.end()
        assert h.read("out") == [
            {"id": "a", "x": 1, "y": 1, "z": 3},
            {"id": "b", "x": 1, "y": 1, "z": 4},
        ]


@pytest.mark.parametrize(
    "options",
    [
        {"within": interval("0s", "2000000d")},
        {"within": interval("-2000000d", "0s")},
        {"window": hopping("2000000d", every="1500000d")},
    ],
)
@pytest.mark.parametrize("at", [0, 2**62, 2**63 - 2, 2**63 - 1])
def test_any_time_of_64_bits_joins_itself_once(options: Any, at: int) -> None:
    class Stamped(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce({"id": "a", "side": record.stream}, timestamp=at)

    p, _, _ = streams()
    for name in ("orders", "payments"):
        p.compute(Stamped, inputs={name: "id"}, outputs=f"{name}.at", name=f"{name}.at")
    left, right = (p.stream(f"{name}.at").key_by("id") for name in ("orders", "payments"))
    select = {"left": "left.side", "right": "right.side"}
    late = {} if "window" in options else {"late": "process"}
    left.join(right, how="full", select=select, **options, **late).named("out")
    with Harness(p) as h:
        h.send("orders", order("a", 1))
        h.send("payments", order("a", 1))
        h.end()
        found = h.records("out")
    assert {(v["left"], v["right"]) for v, _ in found} == {("orders", "payments")}
    windows = [v["window_start"] for v, _ in found if "window_start" in v]
    assert len(set(windows)) == len(found) if windows else len(found) == 1
    assert all(t >= min(at, 2**63 - 2) for _, t in found)


@pytest.mark.parametrize(
    "options", [{}, {"within": interval("-2s", "2s")}, {"window": hopping("4s", every="2s")}]
)
@pytest.mark.parametrize("select", [SELECT, lambda left, right: [left and left["t"], right]])
def test_an_ordered_consumer_sees_pairs_in_one_order_however_the_input_is_cut(
    options: Any, select: Any
) -> None:
    class InOrder(Computation, ordered=True):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce(record.value)

    def order_of(cuts: list[int]) -> list[Any]:
        p, orders, payments = streams()
        orders.join(payments, how="full", select=select, **options).named("out")
        p.compute(InOrder, inputs={"out": ()}, outputs="seen")
        with Harness(p, twice=False) as h:
            start = 0
            for end in cuts:
                for stream in ("payments", "orders"):
                    rows = [order(id, t) for t in range(start, end) for id in ("a", "b", "a")]
                    h.send(stream, *rows)
                start = end
            h.end()
            return h.read("seen")

    assert order_of([5]) == order_of([1, 2, 3, 4, 5]) == order_of([3, 5])


def test_a_function_key_that_would_hide_a_column_or_lose_a_part_does_not() -> None:
    def found(value: dict[str, Any], key: Any) -> list[Any]:
        p = Pipeline("shop")
        left = p.read("l", sources.memory([], timestamp="t")).key_by(key)
        right = p.read("r", sources.memory([], timestamp="s")).key_by(key)
        left.join(right.map(lambda v: {"n": v["n"], "id": v["id"]}).key_by(key), select=None)
        with Harness(p) as h:
            h.send("l", {"t": 1, "key": "x", **value})
            h.send("r", {"s": 1, "n": 1, "id": "x"})
            return h.read("l.join")

    with pytest.raises(UserCodeError, match=r"comes out as the column 'key'.*key_by\(name="):
        found({"key": "other", "who": "x"}, lambda v: v.get("who", v.get("id")))
    assert found({"who": "x"}, lambda v: v.get("who", v.get("id")))[0]["key"] == "x"
    (row,) = found(
        {"key": {"part_0": "x", "part_1": 1}, "who": "x"}, lambda v: (v.get("who", v.get("id")), 1)
    )
    assert row["key"] == {"part_0": "x", "part_1": 1}


@pytest.mark.parametrize("options", [{}, {"window": same_window()}])
def test_records_that_cannot_be_joined_go_aside_alone(options: Any) -> None:
    p = Pipeline("shop")
    window = {"window_start": 0, "window_end": 10}
    left, right = (
        p.read(name, sources.memory([])).key_by(lambda v: "k") for name in ("left", "right")
    )
    select = {"n": "left.n"}
    left.join(right, errors=to("dead"), select=select, **options).named("out")
    with Harness(p) as h:
        h.send("left", {"n": 1, **window}, "text", {"n": 2, **window})
        h.send("right", 5, window)
        h.end()
        assert [v["n"] for v in h.read("out")] == [1, 2]
        letters = [(d["value"], d["stream"], d["key"]) for d in h.read("dead")]
        assert letters == [("text", "left", "k"), (5, "right", "k")]
    if options:
        with Harness(p) as h:
            h.send("left", {"n": 1, **window}, {"n": 3}, {"n": 4, **window, "window_end": None})
            h.send("right", window)
            assert [v["n"] for v in h.read("out")] == [1]
            assert [d["value"]["n"] for d in h.read("dead")] == [3, 4]
