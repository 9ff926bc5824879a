"""What the fluent interface needs of the builder: steps by name, and what is known of streams."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.key_spec import KeyGiven
from headrace.model.values.names import no_option
from headrace.model.values.schema import Schema
from headrace.pipeline.graph.checks import checked_name
from headrace.pipeline.graph.graph import Injector, Node, Outlet

_GIVEN = ("computation", "inputs", "outputs", "name")
"""What a step itself says of its computation."""


class Steps:
    """The part of a builder that `Stream` uses."""

    _injectors: dict[str, Injector]
    _nodes: dict[str, Node]
    _outlets: dict[str, Outlet]
    _feedback: set[str]
    _schemas: dict[str, Schema]
    _unnamed: dict[str, str]
    """Steps whose name was taken -> that name; they wait for `named()`."""
    _known_columns: dict[str, tuple[str, ...]]
    """Streams whose columns are known from the step that makes them."""

    compute: Any

    def _add(
        self,
        name: str,
        computation: Computation,
        inputs: Mapping[str, KeyGiven],
        outputs: str | Mapping[str, str],
        **options: Any,
    ) -> str:
        """Adds a step; gives its name, a makeshift one where it was taken."""
        given, name = name, self._free(name)
        known_options = self._step_options()
        unknown = [option for option in options if option not in known_options]
        if unknown:
            raise no_option(given, unknown[0], known_options)
        if name != given:
            if outputs == given:
                outputs = name
            elif isinstance(outputs, Mapping):
                outputs = {p: name if s == given else s for p, s in outputs.items()}
        ports = {"": outputs} if isinstance(outputs, str) else outputs
        for port, stream in ports.items():
            # Late records of several windows may be poured together; all else is a step's own.
            if port != "late":
                self._check_unmade(stream, given)
        streams = list(ports.values())
        known = {s: c for s in streams if (c := self._known_columns.get(s)) is not None}
        self.compute(computation, inputs=inputs, outputs=outputs, name=name, **options)
        self._known_columns.update(known)
        return name

    def _step_options(self) -> list[str]:
        """The options that every step takes."""
        return [o for o in inspect.signature(self.compute).parameters if o not in _GIVEN]

    def _check_unmade(self, stream: str, where: str, *, but: tuple[str, ...] = ()) -> None:
        """A step's stream is its own: two under one name would be mixed without a word."""
        makers = [n.name for n in self._nodes.values() if stream in n.emitted()]
        makers = [name for name in makers if name not in but]
        if stream in self._injectors:
            makers.append(f"read({stream!r})")
        if makers:
            raise InvalidPipeline(
                f"{where}: there is a stream {stream!r} already, made by {makers[0]}; call one "
                "of them otherwise"
            )

    def _free(self, name: str) -> str:
        """The name, or a makeshift one where it is taken, which waits for `named()`."""
        given = name
        while name in self._nodes:
            name = f"{name}+"
        if name != given:
            self._unnamed[name] = given
        return name

    def _rename(self, nodes: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
        """Gives steps and the streams between them a new name; nobody may use the old one yet."""
        checked_name(new, "a step")
        users = [n.name for n in self._nodes.values() if n.name not in nodes]
        users = [n for n in users if any(i.stream == old for i in self._nodes[n].inputs)]
        users = [f"{name!r} reads" for name in users]
        users += [f"the sink {o.name!r} takes" for o in self._outlets.values() if o.stream == old]
        if users:
            raise InvalidPipeline(
                f"named({new!r}): {users[0]} {old!r} already; call named() right behind the step"
            )

        def renamed(name: str) -> str:
            mine = name == old or name in nodes
            return new + name.removeprefix(old) if mine and name.startswith(old) else name

        taken = [renamed(name) for name in nodes]
        for name in taken:
            if name in self._nodes:
                raise InvalidPipeline(f"named({new!r}): there is a computation of that name")
            self._check_unmade(name, f"named({new!r})", but=nodes)
        fresh: dict[str, Node] = {}
        for node in self._nodes.values():
            if node.name in nodes:
                inputs = tuple(replace(i, stream=renamed(i.stream)) for i in node.inputs)
                outputs = {port: renamed(stream) for port, stream in node.outputs.items()}
                node = replace(node, name=renamed(node.name), inputs=inputs, outputs=outputs)
            fresh[node.name] = node
        self._nodes = fresh
        for name in nodes:
            self._unnamed.pop(name, None)
            if name in self._known_columns:
                self._known_columns[renamed(name)] = self._known_columns.pop(name)
            if name in self._schemas:
                self._schemas[renamed(name)] = self._schemas.pop(name)
        return tuple(taken)

    def _columns_of(self, stream: str) -> tuple[str, ...] | None:
        """The columns of a stream, where they are known while building."""
        if stream in self._schemas:
            return self._schemas[stream].names
        if stream in self._injectors:
            columns = self._injectors[stream].source.columns()
            return None if columns is None else tuple(columns)
        return self._known_columns.get(stream)

    def _alike(self, stream: str, made: str) -> None:
        """What is known of a stream's columns is true of one that holds the same values."""
        if stream in self._schemas:
            self._schemas[made] = self._schemas[stream]
        elif (columns := self._columns_of(stream)) is not None:
            self._known_columns[made] = columns

    def _poured(self, streams: Sequence[str], made: str) -> None:
        """What is known of streams that are poured into one; it may have had some before."""
        known = [self._columns_of(stream) for stream in streams]
        if sum(made in node.emitted() for node in self._nodes.values()) > 1:
            known.append(self._known_columns.pop(made, None))
        if all(columns is not None for columns in known):
            self._known_columns[made] = tuple(dict.fromkeys(c for cs in known for c in cs or ()))

    def _kept_back(self, stream: str) -> str | None:
        """A step that may send records of a stream in a later epoch than they were read."""
        seen, todo = {stream}, [stream]
        while todo:
            name = todo.pop()
            if name in self._feedback:
                return name
            makers = [n for n in self._nodes.values() if name in n.emitted()]
            for node in makers:
                if not (node.keyless or node.template.prompt):
                    return node.name
                todo += [i.stream for i in node.inputs if i.stream not in seen]
                seen.update(todo)
            if not makers and name not in self._injectors:
                return name
        return None
