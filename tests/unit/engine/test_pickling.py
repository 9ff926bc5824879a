"""Classes of a user's own module travel by value, with all their fields."""

import subprocess
import sys

PROGRAM = """
import sys
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict
import msgspec
from headrace.engine.pickling import dumps
from headrace.model.schema import Schema

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
