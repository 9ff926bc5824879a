"""Calls to the outside: reached once per name, whatever dies, and the same answers ever after."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter

import pytest
from tests.unit.pipelines import at, one

from headrace import (
    CallUncertain,
    Computation,
    InvalidPipeline,
    Pipeline,
    ServiceError,
    UserCodeError,
    failpoints,
    service,
    sources,
    state,
    to,
)
from headrace.causal.packing import unpack_determinants
from headrace.testing import Harness

BETWEEN_CALL_AND_COMMIT = [
    "after-result-write",
    "before-segment-write",
    "after-segment-write",
    "after-job",
    "before-commit-write",
    "after-commit-write",
    "before-delivery",
]


class Outside:
    """A world that counts how often it is reached; its answers never repeat."""

    def __init__(self) -> None:
        self.reached: Counter[object] = Counter()
        self.keys: dict[object, set[str]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Outside], tuple[()]]:
        return Outside, ()  # a pipeline must be able to travel, though the world stays here

    def reach(self, what: object, key: str = "") -> int:
        with self._lock:
            self.reached[what] += 1
            self.keys.setdefault(what, set()).add(key)
            return next(self._numbers)


OUTSIDE = Outside()


@pytest.fixture(autouse=True)
def outside():
    OUTSIDE.__init__()
    yield OUTSIDE
    failpoints.disarm()


@service(timeout="300ms")
def charge(customer: str, cents: int, *, idempotency_key: str) -> int:
    return OUTSIDE.reach((customer, cents), idempotency_key)


@service(log="with the commit")
def rate(currency: str) -> float:
    return OUTSIDE.reach(currency) / 4


@service(timeout="300ms", uncertain="again")
def lookup(customer: str) -> int:
    return OUTSIDE.reach(customer)


@service
def refuse(customer: str) -> None:
    OUTSIDE.reach(customer)
    raise ConnectionError("refused")


class Charge(Computation):
    answers: list[int] = state()

    def process_record(self, record, ctx):
        self.answers.append(ctx.call(charge, ctx.key, record.value["n"]))
        ctx.produce([ctx.key, record.value["n"], self.answers[-1]])


class Convert(Computation):
    def process_record(self, record, ctx):
        ctx.produce([ctx.key, ctx.call(rate, ctx.key)])


class Careful(Computation):
    """Tells what its call came to."""

    def __init__(self, function):
        self.function = function

    def process_record(self, record, ctx):
        try:
            ctx.produce(["answer", ctx.call(self.function, ctx.key)])
        except ServiceError as error:
            ctx.produce([type(error).__name__, str(error)])


def numbered(*keys: str) -> list[dict[str, object]]:
    return [at(t, k, n=t) for t, k in enumerate(keys)]


@pytest.mark.parametrize("name", BETWEEN_CALL_AND_COMMIT)
def test_the_outside_is_reached_once_though_the_driver_dies(name, outside):
    with Harness(one(Charge), slots=2) as h:
        h.send("in", *numbered("a", "b", "a"))
        h.crash(at=name)
        made = h.read("out")
        assert h.crashes == 1
        assert set(outside.reached.values()) == {1} and len(outside.reached) == 3
        assert sorted(answer for _, _, answer in made) == [0, 1, 2]
        kept = h.state("C", "a").answers + h.state("C", "b").answers
        assert sorted(kept) == [0, 1, 2]


@pytest.mark.parametrize("name", ["after-intent-write", "after-call"])
def test_a_death_around_the_call_makes_it_uncertain_and_that_stays_so(name, outside):
    class Tell(Computation):
        def process_record(self, record, ctx):
            try:
                ctx.produce(ctx.call(charge, ctx.key, 1))
            except CallUncertain as error:
                ctx.produce(str(error))

    with Harness(one(Tell)) as h:
        h.send("in", at(1))
        h.crash(at=name)
        (made,) = h.read("out")
        assert "may have got through" in made
        assert sum(outside.reached.values()) == (0 if name == "after-intent-write" else 1)


def test_an_uncertain_call_that_may_repeat_is_made_again_under_the_same_key(outside):
    with Harness(one(Careful(lookup))) as h:
        h.send("in", at(1))
        h.crash(at="after-call")
        assert h.read("out") == [["answer", 1]]
        assert outside.reached["a"] == 2


def test_each_cause_has_a_key_of_its_own_that_every_retry_repeats(outside):
    with Harness(one(Charge)) as h:
        h.send("in", *numbered("a", "a", "b"))
        h.read("out")
        keys = [key for found in outside.keys.values() for key in found]
        assert len(keys) == len(set(keys)) == 3


def test_the_successor_of_a_voided_plan_does_not_call_again(outside):
    """A user's bug voids the plan after other keys have called; mended, they find their answers."""
    broken = [True]

    class Fragile(Computation):
        def process_record(self, record, ctx):
            ctx.produce([ctx.key, ctx.call(charge, ctx.key, 1)])
            if broken[0] and ctx.key == "z":
                raise ValueError("a bug")

    h = Harness(one(Fragile), slots=1, epoch_records=100)
    h.send("in", at(1, "a"), at(2, "b"), at(3, "z"))
    with pytest.raises(UserCodeError, match="a bug"):
        h.settle()
    broken[0] = False
    # The successor is cut otherwise: one record an epoch.
    h._failed, h._driver, h._epoch_records = False, None, 1
    assert sorted(h.read("out")) == [["a", 0], ["b", 1], ["z", 2]]
    assert h.epoch >= 3
    assert set(outside.reached.values()) == {1}


def test_answers_that_never_repeat_are_consistent_with_the_commit(outside):
    """Logged with the commit: called again by a rerun, but what counts is one answer."""

    class Twice(Computation):
        rates: list[float] = state()

        def process_record(self, record, ctx):
            self.rates.append(ctx.call(rate, ctx.key))
            ctx.produce(self.rates[-1])

    with Harness(one(Twice)) as h:
        h.send("in", at(1), at(2))
        h.crash(at="before-commit-write")
        assert h.read("out") == h.state("C", "a").rates == [0.5, 0.75]
        assert outside.reached["a"] == 4
        committed = h._open().history.commits[-1][1].determinants
        found = [d for cell in committed.values() for d in unpack_determinants(cell)]
        assert [d.kind for d in found] == ["answer", "answer"]
        kept = [n for n in h._runtime.store.files if n.startswith("determinants/")]
        assert kept == ["determinants/000000000001/opened"]


@pytest.mark.parametrize("name", BETWEEN_CALL_AND_COMMIT)
def test_a_failure_is_an_answer_too_the_same_on_every_replay(name, outside):
    with Harness(one(Careful(refuse))) as h:
        h.send("in", at(1))
        h.crash(at=name)
        assert h.read("out") == [
            ["ServiceError", "service 'refuse' failed: ConnectionError: refused"]
        ]
        assert outside.reached["a"] == 1


def test_a_call_that_hangs_fails_after_its_timeout():
    @service(timeout="50ms", uncertain="again")
    def hang(key: str) -> None:
        time.sleep(0.5)

    with Harness(one(Careful(hang))) as h:
        h.send("in", at(1))
        ((kind, message),) = h.read("out")
        assert kind == "ServiceError" and message.endswith("no answer within 0.05 s")


def test_a_failed_try_is_repeated_as_often_as_it_was_asked_for(outside):
    @service(retries=3, backoff="1ms")
    def third_time(key: str) -> int:
        if (n := outside.reach(key)) < 2:
            raise TimeoutError
        return n

    with Harness(one(Careful(third_time))) as h:
        h.send("in", at(1))
        assert h.read("out") == [["answer", 2]]


def test_a_result_decodes_by_the_annotation_and_a_wrong_one_is_a_failure(outside):
    @service
    def pair(key: str) -> tuple[int, str]:
        return (1, key)

    @service(retries=2)
    def wrong(key: str) -> int:
        outside.reach(key)
        return "no number"  # type: ignore[return-value]

    with Harness(one(Careful(pair))) as h:
        h.send("in", at(1))
        assert h.read("out") == [["answer", [1, "a"]]]
    with Harness(one(Careful(wrong))) as h:
        h.send("in", at(1))
        ((kind, message),) = h.read("out")
        assert kind == "ServiceError" and "its result is declared as int" in message
        assert outside.reached["a"] == 1


def test_a_failed_call_can_go_to_dead_letters_without_a_second_call(outside):
    class Strict(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            ctx.call(charge, ctx.key, record.value["n"])
            if record.value["n"] == 1:
                ctx.call(refuse, ctx.key)
            ctx.produce(self.n)

    with Harness(one(Strict, errors=to("dead"))) as h:
        h.send("in", *numbered("a", "a", "a"))
        assert h.read("out") == [1, 2]
        assert [letter["error"] for letter in h.read("dead")] == [
            "ServiceError: service 'refuse' failed: ConnectionError: refused"
        ]
        assert outside.reached == {("a", 0): 1, ("a", 1): 1, ("a", 2): 1, "a": 1}


def test_timers_and_productions_name_their_calls(outside):
    class Remind(Computation):
        def process_record(self, record, ctx):
            ctx.set_timer("due", at=record.timestamp + 10)
            ctx.produce({"k": ctx.key})
            ctx.produce({"k": ctx.key})

        def process_timer(self, timer, ctx):
            ctx.produce({"k": ctx.call(charge, "timer", timer.timestamp)})

    p = one(Remind)
    p.compute(Charge1, inputs={"out": lambda v: "all"}, outputs="second", name="D")
    with Harness(p, slots=2) as h:
        h.send("in", at(1, "a"), at(2, "b"))
        h.crash(at="before-commit-write")
        h.send("in", at(100, "c"))
        h.end()
        calls = outside.reached
        assert calls[("timer", 11)] == calls[("timer", 12)] == calls[("timer", 110)] == 1
        assert calls[("all", 7)] == len(h.read("second")) == 9
        assert len(outside.keys[("all", 7)]) == 9


class Charge1(Computation):
    def process_record(self, record, ctx):
        ctx.produce(ctx.call(charge, ctx.key, 7))


def test_a_computation_without_key_calls_once_too(outside):
    class Enrich(Computation):
        def process_record(self, record, ctx):
            ctx.produce([record.value["n"], ctx.call(charge, "x", record.value["n"])])

    with Harness(one(Enrich, key=None)) as h:
        h.send("in", *numbered("a", "b"))
        h.crash(at="before-commit-write")
        assert h.read("out") == [[0, 0], [1, 1]]
        assert set(outside.reached.values()) == {1}


def test_an_ordered_computation_calls_once_per_record_however_the_input_is_cut(outside):
    class Ordered(Charge, ordered=True):
        pass

    for cut in (1, 2, 100):
        outside.__init__()
        with Harness(one(Ordered), epoch_records=cut) as h:
            h.send("in", *numbered("a", "b", "a"))
            h.crash()
            h.end()
            assert len(h.read("out")) == 3
            assert set(outside.reached.values()) == {1}
            cut_keys = {what: keys for what, keys in outside.keys.items()}
        names = {what: len(keys) for what, keys in cut_keys.items()}
        assert set(names.values()) == {1}


def test_concurrency_changes_no_result():
    @service(log="with the commit")
    def slow(key: str, n: int) -> list[str]:
        time.sleep((n * 7 % 5) / 2000)
        return [key, str(n)]

    class Slow(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            if record.value["n"] % 17 == 0:
                raise ValueError(record.value["n"])
            ctx.count("hooks")
            ctx.produce([*ctx.call(slow, ctx.key, record.value["n"]), self.n, str(ctx.uuid())])
            ctx.set_timer(at=record.timestamp + 5)

        def process_timer(self, timer, ctx):
            ctx.produce([ctx.key, timer.timestamp])

    def results(concurrency: int) -> tuple[object, ...]:
        with Harness(one(Slow, concurrency=concurrency, errors=to("dead")), slots=2) as h:
            h.send("in", *numbered(*(f"k{i % 120}" for i in range(240))))
            h.crash()
            h.end()
            dead = [letter["value"] for letter in h.read("dead")]
            return h.read("out"), dead, h.counts, [h.state("C", f"k{i}").n for i in range(1, 120)]

    assert results(1) == results(8)


def test_n_keys_wait_for_the_outside_at_once():
    together = threading.Barrier(4, timeout=5)

    @service(log="with the commit")
    def meet(key: str) -> bool:
        together.wait()
        return True

    with Harness(one(Careful(meet), concurrency=4), slots=1, twice=False, picklable=False) as h:
        h.send("in", *numbered("a", "b", "c", "d"))
        assert h.read("out") == [["answer", True]] * 4


def test_another_request_under_the_same_name_is_an_error_not_an_answer(outside):
    cents = itertools.count()

    class Fickle(Computation):
        def process_record(self, record, ctx):
            ctx.call(charge, ctx.key, next(cents))

    with (
        pytest.raises(UserCodeError, match="another request was made under this name"),
        Harness(one(Fickle, outputs=()), twice=False) as h,
    ):
        h.send("in", at(1))
        h.crash(at="after-result-write")


def test_only_what_calls_the_outside_pays_for_it():
    class Plain(Computation):
        def process_record(self, record, ctx):
            ctx.produce(1)

    class Through(Computation):
        def process_record(self, record, ctx):
            helper(ctx)

    def helper(ctx):
        ctx.call(charge, "a", 1)

    topology = one(Plain).freeze()
    assert not topology.uses_services() and not topology.needs_identity
    assert one(Charge).freeze().needs_identity == {"in"}
    with pytest.raises(UserCodeError, match="services=True"), Harness(one(Through)) as h:
        h.send("in", at(1))
    with Harness(one(Through, services=True)) as h:
        h.send("in", at(1))


@pytest.mark.parametrize("n", [0, -1, 2.5, "4", True])
def test_a_concurrency_that_makes_no_sense_is_refused(n):
    with pytest.raises(InvalidPipeline, match="concurrency="):
        one(Charge, concurrency=n)


# On a real wire.


class Web(Computation):
    seen: list[int] = state()

    def __init__(self, url, method):
        self.url, self.method = url, method

    def process_record(self, record, ctx):
        if self.method == "POST":
            found = ctx.http.post(f"{self.url}/pay", json={"key": ctx.key, "t": record.timestamp})
        else:
            found = ctx.http.get(f"{self.url}/rate?t={record.timestamp}")
        self.seen.append(found.json()["n"])
        ctx.produce([found.status, found.ok, found.json()["n"], found.headers["content-type"]])


@pytest.mark.parametrize("name", BETWEEN_CALL_AND_COMMIT)
def test_a_server_is_posted_to_once_though_the_driver_dies(name, web):
    with Harness(one(Web(web.url, "POST"))) as h:
        h.send("in", at(1, "a"), at(2, "a"))
        h.crash(at=name)
        assert h.read("out") == [[200, True, n, "application/json"] for n in (0, 1)]
        assert [json.loads(body)["t"] for _, _, body, _ in web.asked] == [1, 2]
        assert len({key for *_, key in web.asked}) == 2 and None not in {k for *_, k in web.asked}


def test_what_is_fetched_is_the_same_in_state_and_output_though_it_is_fetched_again(web):
    with Harness(one(Web(web.url, "GET"))) as h:
        h.send("in", at(1), at(2))
        h.crash(at="before-commit-write")
        assert [row[2] for row in h.read("out")] == h.state("C", "a").seen == [2, 3]
        assert len(web.asked) == 4


def test_a_busy_server_is_asked_again_and_a_refusal_is_an_answer(web):
    web.answers = [503, 404]
    with Harness(one(Web(web.url, "GET"))) as h:
        h.send("in", at(1))
        assert h.read("out") == [[404, False, 1, "application/json"]]
        first, second = web.asked
        assert first == second


def test_no_server_at_all_is_a_service_error_that_tells_no_secrets():
    class Ask(Computation):
        def process_record(self, record, ctx):
            try:
                ctx.http.get("http://127.0.0.1:9/x?token=secret", retries=0, timeout="1s")
            except ServiceError as error:
                ctx.produce(str(error))

    with Harness(one(Ask)) as h:
        h.send("in", at(1))
        (message,) = h.read("out")
        assert message.startswith("GET http://127.0.0.1:9/x failed: URLError")
        assert "secret" not in message


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "nothing"])
def test_only_web_addresses_are_fetched(url):
    class Ask(Computation):
        def process_record(self, record, ctx):
            ctx.http.get(url)

    p = Pipeline("files")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Ask, inputs={"in": "k"})
    with pytest.raises(UserCodeError, match="is not an address of http"), Harness(p) as h:
        h.send("in", at(1))


# Tables


class Rates(Computation):
    """One call for each key of a table."""

    last: float = state(-1.0)

    def process_table(self, table, ctx):
        rows = ctx.read()
        found = [ctx.call(rate, key) for key in rows["key"].to_pylist()]
        ctx.write(last=found)
        ctx.produce_table({"key": rows["key"], "rate": found})


class ChargeTable(Computation):
    def process_table(self, table, ctx):
        ctx.call(charge, "a", 1)


class RefuseTable(Computation):
    def process_table(self, table, ctx):
        ctx.call(refuse_each, "a")


@service(log="with the commit")
def refuse_each(customer: str) -> None:
    raise ConnectionError("refused")


@pytest.mark.parametrize("name", ["after-job", "before-commit-write", "after-commit-write"])
def test_a_table_may_call_what_is_logged_with_the_commit(name, outside):
    with Harness(one(Rates), slots=2) as h:
        h.send("in", *numbered("a", "b", "a", "c"))
        h.crash(at=name)
        made = {row["key"]: row["rate"] for row in h.read("out")}
        assert set(made) == {"a", "b", "c"} and len(set(made.values())) == 3
        assert {key: h.state("C", key).last for key in made} == made
        committed = h._open().history.commits[-1][1].determinants
        assert sum(len(unpack_determinants(cell)) for cell in committed.values()) == 3


def test_a_keyless_table_may_call_too(outside):
    class Keyless(Computation):
        def process_table(self, table, ctx):
            ctx.produce_table({"rate": [ctx.call(rate, "usd"), ctx.call(rate, "usd")]})

    p = Pipeline("p")
    p.read("in", sources.memory([]))
    p.compute(Keyless, inputs={"in": None}, outputs="out")
    with Harness(p) as h:
        h.send("in", at(1), at(2))
        assert [row["rate"] for row in h.read("out")] == [0.0, 0.25]
        assert outside.reached["usd"] == 2, "two calls, and none more though tasks run twice"


def test_a_table_may_not_call_what_must_not_repeat(outside):
    with pytest.raises(InvalidPipeline, match="service 'charge' must not be made twice"):
        with Harness(one(ChargeTable)) as h:
            h.send("in", at(1))
    assert not outside.reached


def test_a_table_may_get_but_not_post(web):
    class Fetch(Computation):
        def __init__(self, method, url):
            self.method, self.url = method, url

        def process_table(self, table, ctx):
            answer = getattr(ctx.http, self.method)(self.url)
            ctx.produce_table({"status": [answer.status]})

    with Harness(one(Fetch("get", web.url), services=True)) as h:
        h.send("in", at(1))
        assert [row["status"] for row in h.read("out")] == [200]
    with pytest.raises(InvalidPipeline, match=r"POST http://127.0.0.1:\d+ must not be made twice"):
        with Harness(one(Fetch("post", web.url), services=True)) as h:
            h.send("in", at(1))


def test_a_call_of_a_table_that_failed_stops_the_pipeline_with_its_reason():
    with pytest.raises(UserCodeError, match="process_table over 1 records.*refused"):
        with Harness(one(RefuseTable)) as h:
            h.send("in", at(1))


def test_hooks_that_run_again_without_a_failed_record_may_ask_something_else(outside):
    asked = []

    @service(log="with the commit")
    def shout(text: str) -> str:
        asked.append(text)
        return f"{text}, {len(asked)}"

    class Careless(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            if record.value["n"] == "bad":
                self.n = "no number"  # found out at the end of the key
            else:
                told = ctx.call(shout, f"{record.value['n']} after {self.n}")
                ctx.produce(told)

    with Harness(one(Careless, errors=to("dead")), twice=False) as h:
        h.send("in", at(1, n="first"), at(2, n="bad"), at(3, n="last"))
        h.settle()
        assert asked == ["first after 0", "last after no number", "last after 0"]
        assert h.read("out") == ["first after 0, 1", "last after 0, 3"]
        assert len(h.read("dead")) == 1
        assert h.replay(h.epoch).equal
        assert len(asked) == 3, "a replay goes through both passes and calls nobody"
