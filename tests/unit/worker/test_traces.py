"""Tracebacks show the user's own line, and no frame of the house."""

import json
import os

import pyarrow as pa
import pytest

import headrace
from headrace import Computation, Pipeline, UserCodeError, sinks, sources, state, to
from headrace.testing import Harness

HOUSE = os.path.dirname(headrace.__file__)


class Seen(Computation):
    count: int = state(0)

    def process_record(self, record, ctx):
        self.count += 1


def parse(value):
    return json.loads(value["text"])


def deep(value, left=20):
    if left:
        return deeper(value, left - 1)
    raise ValueError("at the bottom")


def deeper(value, left):
    return deep(value, left)


def piped(function, table=False, **options):
    p = Pipeline("traced")
    stream = p.read("in", sources.memory([]))
    step = stream.map_table(function) if table else stream.map(function, **options)
    step.named("step").write(sinks.memory())
    return p


def message(p, value):
    with pytest.raises(UserCodeError) as caught, Harness(p) as h:
        h.send("in", value)
        h.settle()
    return str(caught.value)


def test_a_message_shows_the_users_line_however_deep_a_library_raised():
    text = message(piped(parse), {"text": "no json"})
    assert 'return json.loads(value["text"])' in text
    assert "raise JSONDecodeError" in text
    assert "\nTraceback (most recent call last):\n" in text
    assert HOUSE not in text


def test_a_message_about_a_table_shows_the_users_line():
    text = message(piped(lambda table: pa.table({"n": table["nn"]}), table=True), {"n": 1})
    assert 'table["nn"]' in text and "test_traces.py" in text
    assert "\nTraceback (most recent call last):\n" in text
    assert HOUSE not in text


def test_a_key_function_and_a_setup_that_raise_show_their_lines():
    class Opening(Seen):
        def setup(self):
            os.listdir("/nowhere/at/all")

    for computation, key, line in (
        (Seen, lambda value: value["who"]["name"], 'value["who"]["name"]'),
        (Opening, "who", 'os.listdir("/nowhere/at/all")'),
    ):
        p = Pipeline("keyed")
        p.read("in", sources.memory([]))
        p.compute(computation, inputs={"in": key}, name="C")
        text = message(p, {"who": "ada"})
        assert line in text and "test_traces.py" in text and HOUSE not in text


def test_a_long_traceback_keeps_its_two_ends():
    text = message(piped(deep), {"n": 1})
    assert "frames left out)" in text
    assert text.count("test_traces.py") == 8
    assert 'raise ValueError("at the bottom")' in text


def test_a_chained_error_shows_both():
    def wrap(value):
        try:
            return parse(value)
        except ValueError as error:
            raise LookupError("not found") from error

    text = message(piped(wrap), {"text": "no json"})
    assert "direct cause" in text and 'json.loads(value["text"])' in text
    assert text.count("Traceback (most recent call last):") == 2


def test_dead_letters_hold_no_frame_of_the_house_and_are_the_same_in_a_replay():
    p = Pipeline("letters")
    stream = p.read("in", sources.memory([]))
    stream.map(parse, errors=to("dead")).named("step").write(sinks.memory())
    p.compute(Seen, inputs={"in": lambda value: value["who"]["name"]}, errors=to("dead"))
    with Harness(p) as h:
        h.send("in", {"text": "no json", "who": None})
        letters = h.read("dead")
        assert len(letters) == 2
        for letter in letters:
            assert letter["traceback"].startswith("Traceback (most recent call last):\n")
            assert "test_traces.py" in letter["traceback"]
            assert HOUSE not in letter["traceback"]
        assert h.replay(h.epoch).equal
