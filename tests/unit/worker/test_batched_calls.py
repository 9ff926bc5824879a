"""Batched calls: fewer requests to the outside, and for each call the rules of a single one."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pandas
import pyarrow as pa
import pytest
from tests.unit.pipelines import at, one

from headrace import (
    CallUncertain,
    Computation,
    InvalidPipeline,
    ServiceError,
    UserCodeError,
    failpoints,
    service,
    state,
    to,
)
from headrace.causal import batches
from headrace.testing import Harness


class Model:
    """A web server that scores texts in batches. An answer is never given twice."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.keys: dict[str, list[str]] = {}
        self.given = self.at_once = self.most_at_once = 0
        self.answers = "one for each"
        self.delay_s = 0.0
        self.address = ""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Model], tuple[()]]:
        return Model, ()

    def answer(self, asked: dict[str, list[Any]]) -> list[Any]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.batches.append(asked["texts"])
            for text, key in zip(asked["texts"], asked["keys"], strict=True):
                self.keys.setdefault(str(text), []).append(key)
        time.sleep(self.delay_s)
        with self._lock:
            self.at_once -= 1
            found: list[Any] = []
            for text in asked["texts"]:
                self.given += 1
                found.append({"error": "too long"} if text == "bad" else self.given)
        return {"fewer": found[:-1], "more": [*found, 0]}.get(self.answers, found)


MODEL = Model()


@pytest.fixture(autouse=True)
def model() -> Iterator[Model]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(MODEL.answer(asked)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    MODEL.__init__()  # type: ignore[misc]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    MODEL.address = f"http://127.0.0.1:{server.server_address[1]}/score"
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    yield MODEL
    server.shutdown()
    server.server_close()
    failpoints.disarm()


def ask_model(texts: list[Any], keys: list[str]) -> list[Any]:
    sent = json.dumps({"texts": texts, "keys": keys}).encode()
    with urllib.request.urlopen(MODEL.address, data=sent, timeout=5) as answer:
        found = json.loads(answer.read())
    return [ValueError(a["error"]) if isinstance(a, dict) else a for a in found]


@service(batch=4, timeout="5s")
def score(texts: list[str], idempotency_keys: list[str]) -> list[int | ValueError]:
    return ask_model(texts, idempotency_keys)


@service(batch=4, timeout="500ms", uncertain="again")
def score_again(texts: list[str], idempotency_keys: list[str]) -> list[int]:
    return ask_model(texts, idempotency_keys)


@service(batch=4, log="with the commit")
def score_each(texts: list[str]) -> list[int]:
    return ask_model(texts, ["" for _ in texts])


@service(batch=4, log="with the commit", in_flight=3)
def score_fast(texts: list[str]) -> list[int]:
    return ask_model(texts, ["" for _ in texts])


class Score(Computation):
    """One call for each record."""

    answers: list[int] = state()

    def __init__(self, function: Any = score) -> None:
        self.function = function

    def process_record(self, record, ctx):
        self.answers.append(ctx.call(self.function, record.value["text"]))
        ctx.produce([record.value["text"], self.answers[-1]])


class ScoreMany(Computation):
    """Many calls for each record."""

    def __init__(self, function: Any = score, errors: str = "raise") -> None:
        self.function, self.errors = function, errors

    def process_record(self, record, ctx):
        found = ctx.call_many(self.function, record.value["texts"], errors=self.errors)
        ctx.produce([x if isinstance(x, int) else type(x).__name__ for x in found])


def texts(n: int) -> list[dict[str, Any]]:
    return [at(i, f"k{i}", text=f"text {i}") for i in range(n)]


def sizes(model: Model) -> list[int]:
    return [len(batch) for batch in model.batches]


def test_many_calls_of_a_hook_go_in_batches_and_come_back_in_order(model):
    with Harness(one(ScoreMany)) as h:
        h.send("in", at(1, texts=[f"t{i}" for i in range(10)]))
        assert h.read("out") == [list(range(1, 11))]
    assert sizes(model) == [4, 4, 2], "the second run of the epoch asks nothing"
    assert model.batches[0] == ["t0", "t1", "t2", "t3"]
    assert all(len(keys) == 1 for keys in model.keys.values())
    assert len({key for keys in model.keys.values() for key in keys}) == 10


def test_calls_of_many_keys_are_gathered(model):
    with Harness(one(Score, concurrency=12), slots=1) as h:
        h.send("in", *texts(30))
        made = h.read("out")
    assert [text for text, _ in made] == [f"text {i}" for i in range(30)]
    assert sorted(answer for _, answer in made) == list(range(1, 31))
    assert max(sizes(model)) == 4 and sum(sizes(model)) == 30
    assert len(model.batches) <= 10, "8 would be the fewest"
    assert model.most_at_once == 1


def test_one_key_after_another_asks_batches_of_one(model):
    with Harness(one(Score), slots=1) as h:
        h.send("in", *texts(3))
        assert len(h.read("out")) == 3
    assert sizes(model) == [1, 1, 1]


def test_so_many_batches_are_in_flight_and_no_more(model):
    model.delay_s = 0.05
    with Harness(one(Score(score_fast), concurrency=40), slots=1, twice=False) as h:
        h.send("in", *texts(40))
        assert len(h.read("out")) == 40
    assert model.most_at_once == 3 and max(sizes(model)) == 4
    model.batches.clear()
    model.most_at_once = 0
    with Harness(one(ScoreMany(score_fast)), twice=False) as h:
        h.send("in", at(1, texts=[f"t{i}" for i in range(24)]))
        assert len(h.read("out")[0]) == 24
    assert model.most_at_once == 3 and sizes(model) == [4] * 6


@pytest.mark.parametrize("concurrency", [1, 9])
@pytest.mark.parametrize(
    "name",
    ["before-segment-write", "after-job", "before-commit-write", "after-commit-write"],
)
def test_each_call_of_a_batch_is_made_once_though_the_driver_dies(name, concurrency, model):
    with Harness(one(Score, concurrency=concurrency), slots=2) as h:
        h.send("in", *texts(9))
        h.crash(at=name)
        made = dict(h.read("out"))
        assert h.crashes == 1
        kept = {f"text {i}": h.state("C", f"k{i}").answers for i in range(9)}
        assert kept == {text: [answer] for text, answer in made.items()} and len(kept) == 9
    assert sorted(made.values()) == list(range(1, 10))
    assert {len(keys) for keys in model.keys.values()} == {1}


@service(batch=4, timeout="500ms")
def score_soon(texts: list[str], idempotency_keys: list[str]) -> list[int]:
    return ask_model(texts, idempotency_keys)


class Told(Computation):
    def process_record(self, record, ctx):
        found = ctx.call_many(score_soon, record.value["texts"], errors="return")
        ctx.produce([type(x).__name__ if isinstance(x, Exception) else x for x in found])


@pytest.mark.parametrize("name", ["after-intent-write", "after-call"])
def test_a_death_around_a_batch_makes_its_calls_uncertain_and_no_others(name, model):
    with Harness(one(Told)) as h:
        h.send("in", at(1, texts=["a", "b", "c", "d", "e"]))
        h.crash(at=name)
        h.crash()
        (found,) = h.read("out")
    assert found[:4] == ["CallUncertain"] * 4 and isinstance(found[4], int)
    assert model.batches == [["a", "b", "c", "d"]] * (name == "after-call") + [["e"]]


def test_a_death_between_two_results_of_a_batch_leaves_only_the_others_uncertain(model):
    with Harness(one(Told)) as h:
        h.send("in", at(1, texts=["a", "b", "c"]))
        h.crash(at="after-result-write")
        (found,) = h.read("out")
    assert found == [1, "CallUncertain", "CallUncertain"]
    assert model.batches == [["a", "b", "c"]]


def test_uncertain_calls_that_may_repeat_go_again_under_their_keys_in_other_batches(model):
    with Harness(one(ScoreMany(score_again))) as h:
        h.send("in", at(1, texts=["a", "b", "c", "d", "e"]))
        h.crash(at="after-result-write")
        (found,) = h.read("out")
    assert found[0] == 1, "what was logged counts"
    assert model.batches[:2] == [["a", "b", "c", "d"], ["b", "c", "d"]]
    assert all(len(set(keys)) == 1 for keys in model.keys.values())


def test_one_bad_element_fails_alone(model):
    with Harness(one(Score, concurrency=8, errors=to("dead")), slots=1) as h:
        h.send("in", *texts(3), at(9, "k9", text="bad"))
        assert sorted(text for text, _ in h.read("out")) == ["text 0", "text 1", "text 2"]
        assert [letter["error"] for letter in h.read("dead")] == [
            "ServiceError: service 'score' failed: ValueError: too long"
        ]
    with Harness(one(ScoreMany(errors="return"))) as h:
        h.send("in", at(1, texts=["a", "bad", "b"]))
        ((first, second, third),) = h.read("out")
        assert second == "ServiceError" and third == first + 2
    with pytest.raises(UserCodeError, match="too long"), Harness(one(ScoreMany)) as h:
        h.send("in", at(1, texts=["a", "bad", "b"]))


@pytest.mark.parametrize(("answers", "count"), [("fewer", 2), ("more", 4)])
def test_a_service_that_gives_another_number_of_answers_is_told_so(answers, count, model):
    model.answers = answers
    with (
        pytest.raises(UserCodeError, match=f"gave {count} answers to 3 requests"),
        Harness(one(ScoreMany)) as h,
    ):
        h.send("in", at(1, texts=["a", "b", "c"]))


def test_only_calls_that_failed_are_tried_again(model):
    tries: list[list[str]] = []

    @service(batch=8, retries=2, backoff="1ms")
    def moody(words: list[str]) -> list[str | Exception]:
        tries.append(words)
        return [ConnectionError("busy") if w == "b" and len(tries) < 3 else w for w in words]

    class Moody(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call_many(moody, ["a", "b", "c"]))

    with Harness(one(Moody), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [["a", "b", "c"]]
    assert tries == [["a", "b", "c"], ["b"], ["b"]]


def test_a_batch_that_takes_too_long_is_uncertain_or_failed(model):
    @service(batch=4, timeout="30ms")
    def hangs(words: list[str]) -> list[str]:
        time.sleep(0.2)
        return words

    class Hang(Computation):
        def process_record(self, record, ctx):
            ctx.produce([type(e).__name__ for e in ctx.call_many(hangs, ["ab"], errors="return")])

    with Harness(one(Hang), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [["CallUncertain"]]


@pytest.mark.parametrize("key", ["k", None])
def test_a_table_asks_in_batches(key, model):
    class Table(Computation):
        def process_table(self, table, ctx):
            found = ctx.call_many(score_each, table["text"])
            ctx.produce_table({"text": table["text"], "score": found})

    with Harness(one(Table, key=key), slots=1) as h:
        h.send("in", *texts(10))
        h.crash(at="before-commit-write")
        made = h.read("out")
        assert len(made) == 10 and len({row["score"] for row in made}) == 10
    assert set(sizes(model)) == {4, 2}


def test_a_table_may_not_batch_what_must_not_repeat(model):
    class Table(Computation):
        def process_table(self, table, ctx):
            ctx.call_many(score, table["text"])

    with pytest.raises(InvalidPipeline, match="must not be made twice"), Harness(one(Table)) as h:
        h.send("in", *texts(2))
    assert not model.batches


def test_requests_and_answers_are_any_plain_data(model):
    seen: list[list[Any]] = []
    given = [
        None,
        True,
        2**53 + 1,
        2**63,
        -1.5,
        float("inf"),
        "é",
        b"\x00",
        [],
        {"a": [1, {"b": None}]},
    ]

    @service(batch=100, log="with the commit")
    def same(values: list[Any]) -> list[Any]:
        seen.append(values)
        return values

    class Same(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call_many(same, given) == given and ctx.call_many(same, []) == [])

    with Harness(one(Same), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [True]
    assert seen[0] == given


def test_keys_and_pairs_of_a_dict_are_requests_in_its_order(model):
    @service(batch=10, log="with the commit")
    def joined(values: list[Any]) -> list[str]:
        return [" ".join(map(str, value)) for value in values]

    class OfADict(Computation):
        def process_record(self, record, ctx):
            given = {"be": 1, "as": 2}
            for requests in (given.keys(), given.items()):
                ctx.produce(ctx.call_many(joined, requests))

    with Harness(one(OfADict), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [["b e", "a s"], ["be 1", "as 2"]]


def test_answers_may_come_as_arrays(model):
    import numpy as np

    @service(batch=10, log="with the commit")
    def halves(values: list[int]) -> np.ndarray:
        return np.array(values) / 2

    @service(batch=10, log="with the commit")
    def doubles(values: list[int]) -> Any:
        return pa.array(values)

    class Arrays(Computation):
        def process_record(self, record, ctx):
            ctx.produce([ctx.call_many(halves, np.array([1, 2])), ctx.call_many(doubles, range(2))])

    with Harness(one(Arrays), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [[[0.5, 1.0], [0, 1]]]


def test_a_plain_function_takes_many_requests_too(model):
    @service(in_flight=4, log="with the commit", timeout="1s")
    def plain(word: str, *, suffix: str) -> str:
        return word + suffix

    class Plain(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call_many(plain, ["a", "b", "c"], suffix="!"))

    with Harness(one(Plain), picklable=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [["a!", "b!", "c!"]]


def test_calls_with_other_options_are_in_other_batches(model):
    seen: list[tuple[list[str], str]] = []

    @service(batch=8, log="with the commit")
    def translate(words: list[str], *, into: str) -> list[str]:
        seen.append((sorted(words), into))
        return [f"{word}-{into}" for word in words]

    class Translate(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call(translate, ctx.key, into=record.value["into"]))

    p = one(Translate, concurrency=4)
    with Harness(p, slots=1, picklable=False, twice=False) as h:
        h.send("in", *(at(i, f"k{i}", into="de" if i % 2 else "fr") for i in range(4)))
        assert h.read("out") == ["k0-fr", "k1-de", "k2-fr", "k3-de"]
    assert sorted(seen) == [(["k0", "k2"], "fr"), (["k1", "k3"], "de")]


def test_a_loop_of_calls_and_many_calls_have_the_same_names(model):
    class Loop(Computation):
        def process_record(self, record, ctx):
            ctx.produce([ctx.call(score, text) for text in record.value["texts"]])

    names = []
    for computation in (Loop, ScoreMany):
        with Harness(one(computation)) as h:
            h.send("in", at(1, texts=["a", "b"]))
            assert len(h.read("out")[0]) == 2
            (directory,) = [n for n in h.store.list("determinants") if n.isdigit()]
            files = h.store.list(f"determinants/{directory}")
            names.append(sorted(name for name in files if name.endswith(".result")))
    assert len(names[0]) == 2 and names[0] == names[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch= is a number from 1"),
        ({"batch": True}, "batch= is a number from 1"),
        ({"batch": 1_000_000}, "batch= is a number from 1"),
        ({"in_flight": 0}, "in_flight= is a number from 1 to 64"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidPipeline, match=message):
        service(**options)(len)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.call(score, "a", "b"), "takes one request for each call, not 2"),
        (lambda ctx: ctx.call_many(score, "abc"), "requests are a list, not str"),
        (lambda ctx: ctx.call_many(score, {"a": 1}), "requests are a list, not dict"),
        (lambda ctx: ctx.call_many(score, {"a", "b"}), "requests are a list, not set"),
        (lambda ctx: ctx.call_many(score, pandas.DataFrame({"a": [1]})), "a list, not DataFrame"),
        (
            lambda ctx: ctx.call_many(score, ["a", object()]),
            "request 1: its arguments must be plain",
        ),
        (
            lambda ctx: ctx.call_many(score, ["a"], errors="ignore"),
            'errors= is "raise" or "return"',
        ),
        (lambda ctx: ctx.call(_one_key, "a"), "call its parameter idempotency_keys"),
        (lambda ctx: ctx.call(_no_list, "a"), "its result is a list with one answer for each"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(call, message):
    class Wrong(Computation):
        def process_record(self, record, ctx):
            call(ctx)

    p = one(Wrong, outputs=(), services=True)
    with pytest.raises(UserCodeError, match=message), Harness(p, picklable=False) as h:
        h.send("in", at(1))


@service(batch=2)
def _one_key(texts: list[str], idempotency_key: str) -> list[str]:
    return texts


@service(batch=2)
def _no_list(texts: list[str]) -> str:
    return "a"


def test_a_slow_hook_does_not_hold_up_the_batches_of_others_for_long(model, monkeypatch):
    monkeypatch.setattr(batches, "LINGER_S", 0.02)
    asked = threading.Event()

    @service(batch=8, log="with the commit")
    def quick(words: list[str]) -> list[str]:
        asked.set()
        return words

    class Mixed(Computation):
        def process_record(self, record, ctx):
            if ctx.key == "slow":
                ctx.produce(asked.wait(10))
            else:
                ctx.produce(ctx.call(quick, ctx.key))

    p = one(Mixed, concurrency=4)
    with Harness(p, slots=1, picklable=False, twice=False) as h:
        h.send("in", at(1, "slow"), at(2, "a"), at(3, "b"))
        assert h.read("out") == [True, "a", "b"]


def test_a_hook_may_catch_the_failure_of_its_call(model):
    model.address = "http://127.0.0.1:9/nobody"

    class Catch(Computation):
        def process_record(self, record, ctx):
            try:
                ctx.call(score, "a")
            except (ServiceError, CallUncertain) as error:
                ctx.produce(type(error).__name__)

    with Harness(one(Catch, concurrency=3), slots=1) as h:
        h.send("in", *texts(3))
        h.crash()
        assert h.read("out") == ["ServiceError"] * 3
