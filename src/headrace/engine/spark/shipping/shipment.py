"""The pipeline as bytes for workers, and which part of it cannot be pickled.

Pickling only names the kind of object that failed ("a lock"). Users need the step and the variable.
So after a failure this module searches for them, part by part, even if that is slow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isfunction
from types import CodeType, FunctionType, MethodType
from typing import Any

from pyspark import cloudpickle

from headrace.engine.spark.shipping.modules import modules_of
from headrace.engine.spark.shipping.pickling import dumps
from headrace.errors import InvalidPipeline
from headrace.pipeline.graph.graph import Graph, Node
from headrace.pipeline.graph.topology import Topology

_DEPTH_MAX = 5
_OPERATORS = "headrace.operators"


def pickled(topology: Topology) -> bytes:
    """The pipeline by value: its own modules are included, so workers need not have them."""
    with _by_value(topology.graph):
        try:
            return dumps(topology)
        except Exception as error:
            raise _refusal(topology.graph, error) from error


def require_picklable(graph: Graph) -> None:
    """InvalidPipeline if the user's code and its parameters cannot be sent to workers."""
    with _by_value(graph):
        try:
            timings = [injector.source.timing for injector in graph.injectors.values()]
            dumps((graph.nodes, timings))
        except Exception as error:
            raise _refusal(graph, error) from error


@contextmanager
def _by_value(graph: Graph) -> Iterator[None]:
    modules = {name for node in graph.nodes.values() for name in modules_of(node)}
    classes = [schema.given for schema in graph.schemas.values() if schema.of_class]
    modules.update(cls.__module__ for cls in classes)
    known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    sent = []
    for name in modules - set(known):
        module = sys.modules.get(name)
        if module is not None and name != "__main__" and not name.startswith("headrace"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            sent.append(module)
    try:
        yield
    finally:
        for module in sent:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _refusal(graph: Graph, error: Exception) -> InvalidPipeline:
    found = _culprit(graph)
    return InvalidPipeline(
        f"pipeline {graph.name!r} cannot be sent to workers: {found}{': ' if found else ''}"
        f"{error}. Make locks, clients and open files in setup(), not in __init__ nor around a "
        "function"
    )


def _culprit(graph: Graph) -> str:
    """Which part of which computation, source or sink cannot be pickled; "" if none is found."""
    for node in graph.nodes.values():
        if _fails(node):
            step = type(node.template).__module__.startswith(_OPERATORS)
            return f"{'step' if step else 'computation'} {node.name!r}{_in_node(node)}"
    for injector in graph.injectors.values():
        timing = injector.source.timing
        if named := _in_members({name: getattr(timing, name) for name in timing.__slots__}):
            return f"the source of {injector.stream!r}{named}"
    for injector in graph.injectors.values():
        if _fails(injector.source):
            return f"the source of {injector.stream!r}{_in_members(vars(injector.source))}"
    for outlet in graph.outlets.values():
        if _fails(outlet.sink):
            return f"the sink of {outlet.stream!r}{_in_members(vars(outlet.sink))}"
    return ""


def _in_node(node: Node) -> str:
    if found := _in_members(vars(node.template)):
        return found
    for given in node.inputs:
        if _fails(given.key.function):
            return f", its key of {given.stream!r}{_used_by(given.key.function)}"
    for cls in type(node.template).__mro__:
        for name, member in vars(cls).items():
            if isfunction(member) and (used := _used_by(member)):
                return f", its method {name}{used}"
    return ""


def _in_members(members: dict[str, Any]) -> str:
    for name, value in members.items():
        parts = value if isinstance(value, tuple | list) else (value,)
        for part in parts:
            if isfunction(part) and _fails(part):
                return f", its function{_used_by(part)}"
        if _fails(value):
            return f", its attribute {name!r}"
    return ""


def _used_by(function: Any, depth: int = 0) -> str:
    """The variable of a function that cannot be pickled, with the functions that lead to it."""
    for name, value in _variables(function):
        if _fails(value):
            further = ""
            if isinstance(value, FunctionType | MethodType) and depth < _DEPTH_MAX:
                further = _used_by(value, depth + 1).replace(" uses", ", which uses", 1)
            return f" uses {name!r}{further}"
    return ""


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, MethodType):
        yield "self", function.__self__
        function = function.__func__
    code: CodeType = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    todo = [code]
    while todo:
        code = todo.pop()
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
        todo.extend(c for c in code.co_consts if isinstance(c, CodeType))


def _fails(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return True
    return False
