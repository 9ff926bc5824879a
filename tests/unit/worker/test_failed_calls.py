"""Calls that failed: asked again where nothing of their epoch happened, never where in doubt."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.pipelines import at, one

from headrace import CallUncertain, Computation, ServiceError, UserCodeError, service, state, to
from headrace.testing import Harness

Act = Callable[[], Any]


class World:
    """An outside that does what it was told to do next."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.keys: list[str] = []
        self.reached = 0

    def __reduce__(self) -> tuple[type[World], tuple[()]]:
        return World, ()

    def reach(self, key: str) -> Any:
        self.reached += 1
        self.keys.append(key)
        return self.acts.pop(0)() if self.acts else self.reached


WORLD = World()


@pytest.fixture(autouse=True)
def world():
    WORLD.__init__()
    return WORLD


def fails(error: type[Exception] = ConnectionError) -> Act:
    def act() -> Any:
        raise error("refused")

    return act


@service(timeout="300ms")
def charge(customer: str, *, idempotency_key: str) -> int:
    return WORLD.reach(idempotency_key)


@service(timeout="300ms", uncertain="again")
def charge_again(customer: str, *, idempotency_key: str) -> int:
    return WORLD.reach(idempotency_key)


class Charge(Computation):
    def process_record(self, record, ctx):
        ctx.produce([ctx.key, ctx.call(charge, record.value.get("who", ctx.key))])


class Catch(Computation):
    def process_record(self, record, ctx):
        try:
            ctx.produce([ctx.key, ctx.call(charge, ctx.key)])
        except ServiceError as error:
            ctx.produce([ctx.key, str(error)])


def start_again(h: Harness) -> None:
    """As after a run that stopped: another driver, over the same checkpoint."""
    h._failed, h._driver = False, None


def test_a_call_whose_failure_stopped_the_run_is_asked_again_at_the_next_start(world):
    world.acts = [fails(), fails()]
    with Harness(one(Charge)) as h:
        h.send("in", at(1))
        for _ in range(2):
            with pytest.raises(UserCodeError, match="When the service works, start again"):
                h.settle()
            start_again(h)
        assert h.read("out") == [["a", 3]]
        assert world.reached == 3 and len(set(world.keys)) == 1


def test_a_failure_that_a_hook_caught_is_void_where_another_hook_stopped_the_run(world):
    world.acts = [fails()]
    broken = [True]

    class Fragile(Computation):
        def process_record(self, record, ctx):
            if broken[0]:
                raise ValueError("a bug")

    p = one(Catch)
    p.compute(Fragile, inputs={"out": lambda v: v[0]}, name="D")
    with Harness(p) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match="a bug"):
            h.settle()
        broken[0] = False
        start_again(h)
        assert h.read("out") == [["a", 2]], "nothing of the first epoch has happened"


def test_an_answer_stays_though_the_run_stopped_for_another_call(world):
    asked: list[str] = []

    @service
    def pay(who: str) -> str:
        asked.append(who)
        if who == "b" and asked.count("b") == 1:
            raise ConnectionError("refused")
        return f"paid {len(asked)}"

    class Pay(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call(pay, ctx.key))

    with Harness(one(Pay), slots=1, twice=False, picklable=False) as h:
        h.send("in", at(1, "a"), at(2, "b"))
        with pytest.raises(UserCodeError, match="refused"):
            h.settle()
        start_again(h)
        made = h.read("out")
        assert asked.count("a") == 1 and asked.count("b") == 2
        assert sorted(made) == ["paid 1", "paid 3"] or sorted(made) == ["paid 2", "paid 3"]


def test_a_failure_that_a_committed_hook_was_told_is_told_by_every_replay(world):
    world.acts = [fails()]
    with Harness(one(Catch)) as h:
        h.send("in", at(1))
        h.crash(at="before-commit-write")
        assert h.read("out") == [["a", "service 'charge' failed: ConnectionError: refused"]]
        assert h.replay(h.epoch).equal
        assert world.reached == 1


def test_a_replay_finds_the_answer_that_came_after_a_failure(world):
    world.acts = [fails()]
    with Harness(one(Charge)) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError):
            h.settle()
        start_again(h)
        h.settle()
        assert h.replay(h.epoch).equal
        assert world.reached == 2


def test_a_failed_call_that_made_a_dead_letter_is_not_asked_again(world):
    world.acts = [fails()]
    with Harness(one(Charge, errors=to("dead"))) as h:
        h.send("in", at(1), at(2))
        h.crash(at="before-commit-write")
        assert h.read("out") == [["a", 2]]
        assert [letter["timestamp"] for letter in h.read("dead")] == [1]
        assert world.reached == 2


def test_an_uncertain_call_stays_so_until_the_code_says_that_it_may_repeat(world):
    def hang() -> int:
        time.sleep(0.6)
        return 0

    world.acts = [hang]
    with Harness(one(Charge), twice=False) as h:
        h.send("in", at(1))
        for _ in range(2):
            start_again(h)
            with pytest.raises(UserCodeError, match="CallUncertain.* no answer within 0.3 s"):
                h.settle()
        assert world.reached == 1
        assert not issubclass(CallUncertain, ServiceError)


def test_code_that_says_that_a_call_may_repeat_gets_past_a_doubt(world):
    world.acts = [fails(ConnectionResetError)]
    may_repeat = [False]

    class Choose(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call(charge_again if may_repeat[0] else charge, ctx.key))

    # Both services are one to the outside: they only differ in what their caller says of them.
    charge_again.__qualname__ = charge.__qualname__
    with Harness(one(Choose), twice=False, picklable=False) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match="CallUncertain"):
            h.settle()
        may_repeat[0] = True
        start_again(h)
        assert h.read("out") == [2]
        assert len(set(world.keys)) == 1


@pytest.mark.parametrize(
    "error", [TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError,
              CallUncertain],
)  # fmt: skip
def test_a_function_that_lost_its_answer_is_uncertain(error, world):
    class Tell(Computation):
        def process_record(self, record, ctx):
            try:
                ctx.call(charge, ctx.key)
            except CallUncertain as doubt:
                ctx.produce(str(doubt))

    world.acts = [fails(error)]
    with Harness(one(Tell)) as h:
        h.send("in", at(1))
        (made,) = h.read("out")
        assert "refused" in made and "may have got through or not" in made


def test_only_service_errors_aside_leaves_doubts_where_they_are(world):
    world.acts = [fails(), fails(ConnectionResetError)]
    with Harness(one(Charge, errors=to("dead", only=ServiceError)), slots=1) as h:
        h.send("in", at(1))
        assert len(h.read("dead")) == 1
        h.send("in", at(2))
        with pytest.raises(UserCodeError, match="CallUncertain"):
            h.settle()


def test_what_failed_may_be_asked_otherwise_by_mended_code(world):
    world.acts = [fails()]
    address = ["wrong"]

    class Ask(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.call(charge, address[0]))

    with Harness(one(Ask), twice=False, picklable=False) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match="refused"):
            h.settle()
        address[0] = "right"
        start_again(h)
        assert h.read("out") == [2]


def test_a_result_that_cannot_be_used_was_given_all_the_same_and_is_not_asked_for_again(world):
    world.acts = [lambda: "no number"]
    with Harness(one(Charge), twice=False) as h:
        h.send("in", at(1))
        for _ in range(2):
            start_again(h)
            with pytest.raises(UserCodeError, match="ServiceError.*declared as int") as caught:
                h.settle()
            assert "asked again" not in str(caught.value)
        assert world.reached == 1


def test_a_timer_that_fires_twice_in_one_name_is_told_what_was_committed(world):
    """Its first plan failed and was voided; then many epochs went by before it fires again."""
    world.acts = [fails()]

    class Again(Computation):
        told: list[int] = state()

        def process_record(self, record, ctx):
            ctx.set_timer("same", at=5)

        def process_timer(self, timer, ctx):
            self.told.append(ctx.call(charge, ctx.key))

    with Harness(one(Again, outputs=()), epoch_records=1) as h:
        h.send("in", at(10))
        with pytest.raises(UserCodeError, match="refused"):
            h.settle()
        start_again(h)
        h.settle()
        for t in range(11, 14):
            h.send("in", at(t, "b"))
            h.settle()
        h.send("in", at(20))
        h.settle()
        assert h.state("C", "a").told == [2, 2]


# On a real wire.


class Post(Computation):
    def __init__(self, url, **options):
        self.url, self.how = url, options

    def process_record(self, record, ctx):
        answer = ctx.http.post(self.url, json=record.value, **self.how)
        if not answer.ok:
            raise RuntimeError(f"status {answer.status}")
        ctx.produce(answer.status)


def test_a_post_that_nobody_listened_to_is_made_when_somebody_does():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with Harness(one(Post(f"http://127.0.0.1:{port}/"))) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match=r"ServiceError: POST .*refused"):
            h.settle()
        start_again(h)
        reached: list[bytes] = []
        listener = socket.create_server(("127.0.0.1", port))

        def answer() -> None:
            connection, _ = listener.accept()
            reached.append(connection.recv(4096))
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n{}")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass  # Closing with unread bytes would reset the connection.
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert h.read("out") == [200]
        thread.join(5)
        listener.close()
        assert len(reached) == 1


@pytest.mark.parametrize(
    ("status", "posts"),
    [(401, 2), (404, 2), (429, 2), (503, 2), (409, 1), (500, 1), (502, 1), (504, 1)],
)
def test_a_server_that_refused_is_asked_again_and_one_that_failed_is_not(status, posts, web):
    web.answers = [status]
    with Harness(one(Post(f"{web.url}/")), twice=False) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match=f"status {status}"):
            h.settle()
        start_again(h)
        if posts == 2:
            assert h.read("out") == [200]
        else:
            with pytest.raises(UserCodeError, match=f"status {status}"):
                h.settle()
        assert len(web.keys) == posts and len(set(web.keys)) == 1


def test_where_a_post_may_repeat_a_server_that_failed_is_asked_again_too(web):
    web.answers = [500, "hang up"]
    with Harness(one(Post(f"{web.url}/", uncertain="again")), twice=False) as h:
        h.send("in", at(1))
        for why in ("status 500", "ServiceError: POST"):
            with pytest.raises(UserCodeError, match=why):
                h.settle()
            start_again(h)
        assert h.read("out") == [200]
        assert len(web.keys) == 3 and len(set(web.keys)) == 1


def test_a_post_without_an_answer_is_uncertain(web):
    web.answers = ["hang up"]
    with Harness(one(Post(f"{web.url}/")), twice=False) as h:
        h.send("in", at(1))
        for _ in range(2):
            start_again(h)
            with pytest.raises(UserCodeError, match=r"CallUncertain: POST .*may have got through"):
                h.settle()
        assert len(web.keys) == 1


def test_retries_are_made_inside_the_call_under_one_key(web):
    web.answers = ["hang up", 503, 429, 200]
    with Harness(one(Post(f"{web.url}/", retries=3, backoff="1ms")), twice=False) as h:
        h.send("in", at(1))
        assert h.read("out") == [200]
        assert len(web.keys) == 4 and len(set(web.keys)) == 1 and None not in web.keys


def test_a_doubt_among_the_tries_remains_where_none_was_answered(web):
    web.answers = ["hang up", "hang up"]
    with Harness(one(Post(f"{web.url}/", retries=1, backoff="1ms")), twice=False) as h:
        h.send("in", at(1))
        with pytest.raises(UserCodeError, match=r"CallUncertain: POST .* \(2 tries\)"):
            h.settle()
