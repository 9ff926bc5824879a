"""Classes of a user's own module travel by value, with all their fields."""

import subprocess
import sys

import msgspec
import pytest

from headrace import InvalidPipeline
from headrace.engine.spark.shipping.pickling import dumps

PROGRAM = """
import sys
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict
import msgspec
from headrace.engine.spark.shipping.pickling import dumps
from headrace.model.values.schema import Schema

class Base(msgspec.Struct, frozen=True):
    a: int
    b: list[str] = []

class Sub(Base, frozen=True, kw_only=True):
    c: int
    d: int = 3

    def twice(self):
        return self.c * 2

@dataclass
class Data:
    x: int = 5

class Row(TypedDict):
    y: int
    z: NotRequired[str]

schemas = [Schema(kind, where="here") for kind in (Sub, Data, Row)]
sys.stdout.buffer.write(dumps((schemas, Sub(a=1, c=2))))
"""

READER = """
import sys
from pyspark import cloudpickle
schemas, value = cloudpickle.loads(sys.stdin.buffer.read())
assert type(value) is schemas[0].given
print(value, value.twice())
for schema, row in zip(schemas, ({"a": 1, "c": 4}, {}, {"y": 1})):
    print(schema.names, schema.of(row))
"""


def test_structs_dataclasses_and_typed_dicts_of_main_arrive_whole() -> None:
    sent = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=120)
    assert sent.returncode == 0, sent.stderr[-2000:]
    got = subprocess.run(
        [sys.executable, "-c", READER], input=sent.stdout, capture_output=True, timeout=120
    )
    assert got.returncode == 0, got.stderr[-2000:]
    assert got.stdout.decode().splitlines() == [
        "Sub(a=1, b=[], c=2, d=3) 4",
        "('a', 'b', 'c', 'd') Sub(a=1, b=[], c=4, d=3)",
        "('x',) Data(x=5)",
        "('y', 'z') {'y': 1}",
    ]


CLASSES = """
import msgspec, sys, weakref
from typing import Annotated, Any, ClassVar, Generic, TypeVar

T = TypeVar("T")

class Order(msgspec.Struct, rename="camel"):
    order_id: str
    unit_price: int = msgspec.field(default=0, name="p")
    lines: list[str] = msgspec.field(default_factory=lambda: ["none"])

class Redone(Order, rename="kebab", kw_only=True):
    more_of_it: int
    unit_price: int = 7

class Inherits(Order):
    other_one: int = 2

class Tagged(msgspec.Struct, tag="t", tag_field="kind", omit_defaults=True):
    a: int = 1

class Strict(
    msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False, array_like=True,
    forbid_unknown_fields=True, repr_omit_defaults=True,
):
    k: ClassVar[int] = 5
    a: Annotated[int, msgspec.Meta(ge=0)] = 1

class Unlike(msgspec.Struct, eq=False, weakref=True, dict=True):
    a: int | msgspec.UnsetType = msgspec.UNSET

class Box(msgspec.Struct, Generic[T]):
    x: T

class Node(msgspec.Struct):
    v: int
    next: "Node | None" = None

    def __post_init__(self):
        self.v += 1

    def longer(self):
        return Node(0, self)

    @classmethod
    def made(cls):
        return cls(5)

class Loud(Node):
    def __repr__(self):
        return super().__repr__().upper()

classes = (Order, Redone, Inherits, Tagged, Strict, Unlike, Box, Node, Loud)
"""

SHOWN = """
Order, Redone, Inherits, Tagged, Strict, Unlike, Box, Node, Loud = classes
encode, decode = msgspec.json.encode, msgspec.json.decode

def attempt(run):
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

for run in (
    lambda: encode(Order("a", 3)),
    lambda: decode(b'{"orderId":"a","p":3}', type=Order),
    lambda: encode(Redone("a", more_of_it=1)),
    lambda: Redone("a", ["x"], 3),
    lambda: encode(Inherits("a")),
    lambda: encode([Tagged(), Tagged(2)]),
    lambda: decode(b'{"kind":"u"}', type=Tagged),
    lambda: encode(Strict(3)),
    lambda: decode(b"[1, 2]", type=Strict),
    lambda: decode(b"[-1]", type=Strict),
    lambda: setattr(Strict(), "a", 2),
    lambda: (Strict(1) < Strict(2), hash(Strict()) == hash(Strict()), Strict.k, repr(Strict())),
    lambda: (Unlike() == Unlike(), weakref.ref(Unlike())() is None, vars(Unlike())),
    lambda: (encode(Unlike()), encode(Unlike(None))),
    lambda: (decode(b'{"x":1}', type=Box[int]), Box("a")),
    lambda: decode(b'{"x":"a"}', type=Box[int]),
    lambda: decode(b'{"v":1,"next":{"v":2}}', type=Node),
    lambda: decode(b'{"v":1,"next":{"v":"2"}}', type=Node),
    lambda: (type(Node(1).longer()) is Node, Node.made(), Loud(1)),
    lambda: [(f.name, f.encode_name, f.default, f.required)
             for c in classes for f in msgspec.structs.fields(c)],
):
    print(attempt(run))
"""

SENDING = f"""{CLASSES}
from headrace.engine.spark.shipping.pickling import dumps
sys.stderr.buffer.write(dumps(classes))
{SHOWN}
"""

ARRIVED = f"""
import sys, msgspec, weakref
from pyspark import cloudpickle
classes = cloudpickle.loads(sys.stdin.buffer.read())
{SHOWN}
"""


def test_what_a_struct_encodes_and_refuses_is_the_same_on_both_sides() -> None:
    sent = subprocess.run([sys.executable, "-c", SENDING], capture_output=True, timeout=120)
    assert sent.returncode == 0, sent.stderr[-2000:]
    got = subprocess.run(
        [sys.executable, "-c", ARRIVED], input=sent.stderr, capture_output=True, timeout=120
    )
    assert got.returncode == 0, got.stderr[-2000:]
    here, there = sent.stdout.decode().splitlines(), got.stdout.decode().splitlines()
    assert here == there
    assert here[0] == """b'{"orderId":"a","p":3,"lines":["none"]}'"""


def test_a_struct_that_cannot_travel_says_so() -> None:
    class Meta(type(msgspec.Struct)):  # type: ignore[misc]
        pass

    class Odd(metaclass=Meta):
        a: int

    with pytest.raises(InvalidPipeline, match=r"Odd is a Struct with a metaclass.*import"):
        dumps(Odd)
