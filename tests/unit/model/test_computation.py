"""Declarations: what a computation class says of itself, and what is refused."""

import pytest

from headrace import Computation, InvalidPipeline, Map, state
from headrace.model.computation import Shape, object_class
from headrace.model.state import declared_fields


class Base(Computation, ordered=True, ttl="1h", version=3):
    count: int = state(0)

    def process_record(self, record, ctx): ...


class Derived(Base, version=4):
    names: list[str] = state()
    count: float = state(1.0)


class NotUsed:
    pass


def test_options_and_fields_are_inherited_and_overridden():
    assert Derived.options.ordered
    assert Derived.options.ttl_us == Base.options.ttl_us
    assert (Base.options.version, Derived.options.version) == (3, 4)
    fields = {f.name: f.codec.type for f in declared_fields(Derived)}
    assert fields == {"count": float, "names": list[str]}
    assert declared_fields(Base)[0].codec.type is int


@pytest.mark.parametrize(
    ("annotation", "initial"),
    [
        (int, 0),
        (str, ""),
        (list[int], []),
        (dict[str, int], {}),
        (set[str], set()),
        (int | None, None),
        (tuple[int, ...], ()),
        (bool, False),
    ],
    ids=str,
)
def test_without_a_default_a_field_begins_empty(annotation, initial):
    cls = type("C", (Base,), {"__annotations__": {"f": annotation}, "f": state()})
    assert next(f for f in declared_fields(cls) if f.name == "f").fresh() == initial


def test_each_key_gets_an_initial_value_of_its_own():
    cls = type("C", (Base,), {"__annotations__": {"f": list[int]}, "f": state([1])})
    field = next(f for f in declared_fields(cls) if f.name == "f")
    field.fresh().append(2)
    assert field.fresh() == [1]


def test_a_factory_gives_the_initial_value():
    cls = type("C", (Base,), {"__annotations__": {"f": dict[str, int]}})
    cls.f = state(factory=lambda: {"a": 1})
    assert next(f for f in declared_fields(cls) if f.name == "f").fresh() == {"a": 1}


def _class(annotation, mark):
    annotations = {} if annotation is None else {"f": annotation}
    return type("C", (Base,), {"__annotations__": annotations, "f": mark})


@pytest.mark.parametrize(
    ("annotation", "mark", "reason"),
    [
        (None, state(0), "has no annotation"),
        (int, state("x"), "does not fit the declared type"),
        (int, state(2**70), "does not fit the declared type"),
        (NotUsed, state(), "cannot be encoded"),
        ("Nowhere", state(), "cannot be resolved"),
        (Map[float, int], state(), "a Map's key is"),
        (Map[str, NotUsed], state(), "cannot be encoded"),
    ],
    ids=str,
)
def test_a_declaration_that_cannot_work_is_refused(annotation, mark, reason):
    with pytest.raises(InvalidPipeline, match=reason):
        Shape(_class(annotation, mark))


def test_a_field_has_a_default_or_a_factory_not_both():
    with pytest.raises(InvalidPipeline, match="not both"):
        state(1, factory=int)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clock": "sun"}, "clock is"),
        ({"version": 0}, "version"),
        ({"version": True}, "version"),
    ],
    ids=str,
)
def test_a_class_line_that_cannot_work_is_refused(options, reason):
    with pytest.raises(InvalidPipeline, match=reason):
        type("C", (Base,), {}, **options)


def test_a_ttl_needs_a_unit():
    with pytest.raises(TypeError, match="needs a unit"):
        type("C", (Base,), {}, ttl=5)


def test_a_class_takes_records_or_tables_not_both_and_not_neither():
    with pytest.raises(InvalidPipeline, match="neither"):
        Shape(type("C", (Computation,), {}))
    both = {"process_table": lambda s, t, c: None, "process_record": lambda s, r, c: None}
    with pytest.raises(InvalidPipeline, match="keep one of them"):
        Shape(type("C", (Computation,), both))


@pytest.mark.parametrize(
    ("options", "body", "reason"),
    [
        ({"ordered": True}, {}, "ordered"),
        ({"ttl": "1h"}, {}, "ttl"),
        ({}, {"process_timer": lambda s, t, c: None}, "timers"),
        ({}, {"__annotations__": {"m": Map[str, int]}, "m": state(ttl="1h")}, "Map"),
    ],
    ids=str,
)
def test_what_tables_cannot_have_is_refused(options, body, reason):
    body = {"process_table": lambda s, t, c: None, **body}
    with pytest.raises(InvalidPipeline, match=reason):
        Shape(type("C", (Computation,), body, **options))


def test_parameters_are_on_the_class_of_key_objects_and_functions_stay_functions():
    class Scaled(Base):
        def __init__(self, scale, rename):
            self.scale, self.rename = scale, rename

    fields = Shape(Scaled).fields
    bound = object_class(Scaled(3, lambda text: text * 2), fields)
    obj = object_class(Scaled(3, str.upper), fields).__new__(bound)
    assert obj.scale == 3
    assert obj.rename("ab") == "abab"
    assert vars(obj) == {}
