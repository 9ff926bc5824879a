"""The queue of requests, and the requester: what it may conclude, and what it may not."""

import pytest
from tests.unit.systems import Stopwatch

from headrace.control.queue import RequestQueue, names_between
from headrace.control.request import decode_request, encode_answer, encode_request
from headrace.control.requester import QueuedRequest, Requester
from headrace.errors import InvalidPipeline, StoreError, Unheard
from headrace.log import paths
from headrace.plan.control import TAKEN, ControlRequest, ControlState, Outcome, answer_of, done_of
from headrace.plan.decisions.control import Damage
from headrace.store.memory import MemoryStore
from headrace.store.store import ForwardingStore


class Ticking(Stopwatch):
    """Waiting for an event takes no time but that of the stopwatch, and lets a test act."""

    def __init__(self):
        super().__init__()
        self.acts = []

    def event(self):
        system = self

        class Tick:
            def wait(self, timeout):
                system.now_s += timeout
                if system.acts:
                    system.acts.pop(0)()
                return False

        return Tick()


def request(nonce="mine", verb="pause"):
    return ControlRequest("id", nonce, nonce, verb)


def outcome(position, nonce="mine", done="", verdict=TAKEN):
    return Outcome(position, nonce, nonce, "pause", verdict, 1, done=done)


class World:
    """A store, what its log says, and a requester."""

    def __init__(self, store=None):
        self.system = Ticking()
        self.store = store or MemoryStore(self.system)
        self.store.system = self.system
        self.queue = RequestQueue(self.store)
        self.known = ControlState()
        self.requester = Requester(self.store, lambda: self.known)

    def decide(self, *outcomes, answers=True):
        for each in outcomes:
            self.known = self.known.with_outcome(each, 4)
            if answers:
                self.queue.put_answer(answer_of(each))
                if each.done:
                    self.queue.put_answer(done_of(each), paths.DONE)


def test_requests_form_a_queue():
    world = World()
    positions = [world.requester.ask(request(n)).position for n in ("a", "b", "c")]
    assert positions == [1, 2, 3]
    assert [r.nonce for r in world.queue.read_from(1, 10)] == ["a", "b", "c"]
    assert [r.nonce for r in world.queue.read_from(2, 1)] == ["b"]
    assert world.queue.last() == 3


def test_a_request_after_the_trimmed_ones_has_the_next_position():
    world = World()
    for nonce in ("a", "b", "c"):
        world.requester.ask(request(nonce))
    world.decide(*(outcome(at, n) for at, n in ((1, "a"), (2, "b"), (3, "c"))))
    world.queue.trim(world.queue.names(), 3, 64)
    assert world.queue.names() == {f"{3:020d}", *(f"{at:020d}.answer" for at in (1, 2, 3))}
    assert world.requester.ask(request("d")).position == 4


def test_the_cursor_shows_the_end_where_the_newest_request_was_lost():
    world = World()
    world.known = ControlState(cursor=7)
    assert world.requester.ask(request()).position == 8


def test_answers_outlive_their_requests_by_as_many_outcomes_as_are_kept():
    world = World()
    for at in range(1, 9):
        world.decide(outcome(at, f"n{at}", done="x"))
        world.queue.trim(names_between(at - 1, at, 4), at, 4)
    assert sorted(world.queue.names()) == [
        f"{at:020d}{suffix}" for at in (5, 6, 7, 8) for suffix in (".answer", ".done")
    ]


def test_the_answer_under_its_own_nonce_is_what_it_is_told():
    world = World()
    asked = world.requester.ask(request())
    world.decide(outcome(1, done="paused after epoch 5"))
    world.requester.wait(asked, done=True)
    assert (asked.answer.verdict, asked.done.message) == ("taken", "paused after epoch 5")


def test_it_waits_for_the_effect_only_if_the_request_was_taken():
    world = World()
    asked = world.requester.ask(request())
    world.decide(outcome(1, verdict="refused"))
    world.requester.wait(asked, done=True)
    assert asked.answer.verdict == "refused" and asked.done is None


def test_an_answer_that_was_lost_is_read_from_the_log():
    world = World()
    asked = world.requester.ask(request())
    world.decide(outcome(1, done="x"), answers=False)
    world.requester.wait(asked, done=True)
    assert asked.answer.verdict == "taken" and asked.done.message == "x"


def test_silence_means_nothing():
    world = World()
    asked = world.requester.ask(request())
    looks = iter([False] * 50)
    world.requester.wait(asked, give_up=lambda: next(looks, True))
    assert asked.answer is None and asked.position == 1
    assert world.queue.read(1) == request(), "it is still in the queue, and may be taken"


def test_the_answer_to_another_means_that_it_was_not_heard_and_it_asks_again():
    """It slept between finding the end and its put; its position was taken, answered, trimmed."""
    world = World()
    world.decide(outcome(1, "other"), outcome(2, "third"))
    world.queue.put(1, encode_request(request()))
    asked = QueuedRequest(request(), 1)
    world.system.acts = [lambda: world.decide(outcome(3))]
    world.requester.wait(asked)
    assert asked.position == 3 and asked.answer.nonce == "mine"
    assert world.queue.read(3) == request()


@pytest.mark.parametrize("answers", [True, False])
def test_a_name_that_another_took_after_its_own_request_was_trimmed_is_no_reason_to_ask_again(
    answers,
):
    """It slept after its put. Its request was decided and trimmed, and a sleeper put there."""

    class Slow(ForwardingStore):
        def put_if_absent(self, name, data):
            done = super().put_if_absent(name, data)
            if name == paths.request(1) and b"mine" in data:
                world.decide(outcome(1), outcome(2, "other"), answers=answers)
                world.queue.trim({f"{1:020d}"}, 2, 4)
                self.base.put_if_absent(name, encode_request(request("sleeper")))
            return done

    world = World(Slow(MemoryStore()))
    asked = world.requester.ask(request())
    assert (asked.position, asked.answer.verdict) == (1, "taken")


def test_a_cursor_beyond_it_with_another_nonce_means_the_same():
    world = World()
    asked = world.requester.ask(request())
    world.decide(outcome(1, "other"), answers=False)
    world.system.acts = [lambda: None] * 12 + [lambda: world.decide(outcome(2))]
    world.requester.wait(asked)
    assert asked.position == 2 and asked.answer.nonce == "mine"


def test_a_request_that_was_decided_too_long_ago_is_not_known():
    world = World()
    asked = world.requester.ask(request())
    world.decide(*(outcome(at, f"n{at}") for at in range(1, 9)), answers=False)
    with pytest.raises(Unheard, match="not known any more"):
        world.requester.wait(asked)


class Unsure(ForwardingStore):
    """Puts fail: some after they have arrived, some before."""

    def __init__(self, base, outcomes):
        super().__init__(base)
        self.outcomes = list(outcomes)

    def put_if_absent(self, name, data):
        lands = self.outcomes.pop(0) if self.outcomes else None
        if lands is None:
            return super().put_if_absent(name, data)
        if lands:
            super().put_if_absent(name, data)
        raise StoreError("timed out")


@pytest.mark.parametrize("outcomes", [[True], [False], [False, False, True], [False, True, True]])
def test_a_put_without_an_answer_is_settled_at_the_same_position(outcomes):
    base = MemoryStore()
    world = World(Unsure(base, outcomes))
    assert world.requester.ask(request()).position == 1
    assert world.queue.last() == 1


def test_a_put_without_an_answer_that_another_has_overtaken_goes_on_to_the_next():
    base = MemoryStore()
    world = World(Unsure(base, [False]))
    world.system.acts = [lambda: RequestQueue(base).put(1, encode_request(request("other")))]
    assert world.requester.ask(request()).position == 2


def test_a_put_may_be_given_up_while_the_store_does_not_answer():
    world = World(Unsure(MemoryStore(), [False] * 100))
    with pytest.raises(StoreError, match="could not be put, or its put was not answered"):
        world.requester.ask(request(), give_up=lambda: True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        encode_request(request())[:-3],
        encode_request(request()).replace(b"pause", b"pauze"),
        encode_answer(answer_of(outcome(1))),
        b"x" * (1 << 20),
    ],
)
def test_what_is_not_a_request_is_damage_and_not_an_error(data):
    assert isinstance(decode_request(data, "control/1"), Damage)


def test_a_request_is_small():
    with pytest.raises(InvalidPipeline, match="at most 65,536 bytes of JSON"):
        encode_request(ControlRequest("id", "n", "n", "deploy", {"x": "y" * 70_000}))


def test_names_between_positions_are_those_that_are_freed():
    assert names_between(0, 1, 4) == []
    assert names_between(1, 2, 4) == [f"{1:020d}"]
    assert names_between(5, 6, 4) == [
        f"{5:020d}", f"{1:020d}.answer", f"{1:020d}.done", f"{2:020d}.answer", f"{2:020d}.done",
    ]  # fmt: skip
