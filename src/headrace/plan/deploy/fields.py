"""Fields whose declared types differ between the code in force and new code, by their contracts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from headrace.plan.deploy.comparison import Facts, pairs_of, renames
from headrace.plan.deploy.contract import Contract

_MODULES = re.compile(r"(?:[A-Za-z_]\w*\.|<locals>\.)+")

_PLAIN = frozenset({"bool", "int", "float", "str", "None"})


class ChangedField(msgspec.Struct, frozen=True):
    """A field whose declared type differs between two codes, in a computation that has state."""

    computation: str
    """Its name in the new code."""
    stored_as: str
    """The name under which its state lies."""
    field: str
    was: str
    now: str
    raised: bool
    """Whether the class's version is higher, so that `migrate` sees the field."""

    @property
    def is_other_kind(self) -> bool:
        """Whether a field became a Map, or a Map a field."""
        return is_map(self.was) != is_map(self.now)

    @property
    def is_keyed_otherwise(self) -> bool:
        """Whether the keys of a Map are declared as another type."""
        return is_map(self.was) and _of_keys(self.was) != _of_keys(self.now)

    @property
    def only_adds(self) -> bool:
        """Whether the new type has all alternatives of the old one, and each is a plain type: then
        it reads every value that the old one could write."""
        was, now = _alternatives(self.was), _alternatives(self.now)
        return was <= now <= _PLAIN


def changed_fields(old: Contract, new: Contract, facts: Facts) -> Iterator[ChangedField]:
    """The fields that a start with new code finds stored with another declared type.

    The module of a type does not count: a script and an import name it differently. A class with
    other fields is another type; contracts of older releases do not tell its fields.
    """
    for was, now in pairs_of(old, new, renames(old, new, facts)):
        if was.name in facts.with_state and now.keyed:
            for field, kind in now.fields.items():
                before = was.fields.get(field, kind)
                shapes = was.shapes.get(field, ""), now.shapes.get(field, "")
                raised = now.version > was.version
                if bare(before) != bare(kind):
                    yield ChangedField(now.name, was.name, field, before, kind, raised)
                elif all(shapes) and shapes[0] != shapes[1]:
                    before, kind = (f"{bare(kind)}, {shape}" for shape in shapes)
                    yield ChangedField(now.name, was.name, field, before, kind, raised)


def other_windows(old: Contract, new: Contract, facts: Facts) -> Iterator[tuple[str, str]]:
    """Computations with state whose windows or aggregates mean something else than before: their
    names in the new code and in the state."""
    for was, now in pairs_of(old, new, renames(old, new, facts)):
        both = was.checksum and now.checksum
        if was.name in facts.with_state and both and was.checksum != now.checksum:
            yield now.name, was.name


def lower_versions(old: Contract, new: Contract, facts: Facts) -> Iterator[str]:
    """A sentence for each computation whose state was written by a higher version."""
    for was, now in pairs_of(old, new, renames(old, new, facts)):
        if was.name in facts.with_state and now.keyed and now.version < was.version:
            yield (
                f"computation {now.name!r} has state of version {was.version}, and this code is "
                f"version {now.version}: run code with version={was.version} or higher"
            )


def is_map(declared: str) -> bool:
    """Whether a declared type is that of a Map."""
    return bare(declared).partition("[")[0] == "Map"


def _of_keys(declared: str) -> str:
    """The declared type of a Map's keys."""
    depth = 0
    for at, sign in enumerate(text := bare(declared).partition("[")[2]):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and not depth:
            return text[:at]
    return ""


def _alternatives(declared: str) -> frozenset[str]:
    return frozenset(bare(declared).split(" | "))


def bare(declared: str) -> str:
    """A declared type without the names of modules."""
    short = _MODULES.sub("", declared)
    return short.removeprefix("<class '").removesuffix("'>")
