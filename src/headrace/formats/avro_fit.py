"""Rows as fastavro takes them: checked against the schema, with texts of decimals and times parsed.

fastavro alone would round 1.5 in a field of integers, and take True for 1. And a value that a
function produces has texts where it had decimals or dates, because records are MessagePack: a field
that is declared as one takes the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace.formats.format import holds
from headrace.model.texts import Unfit, date_of, decimal_of, moment_of, time_of

Fit = Callable[[Any], Any]
_INTEGERS = {"int": 2**31, "long": 2**63}
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "string": (str,),
    "bytes": (bytes,),
}


class Misfit(ValueError):
    """A value that does not fit, and the path to it."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path

    def inside(self, part: str) -> Misfit:
        """The same, as seen from around it."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return Misfit(self.reason, f"{part}{dot}{self.path}")


def fitter(schema: Any, named: Mapping[str, Any]) -> Fit:
    """A function that returns a value as fastavro takes it, or raises Misfit."""
    return _Fitters(named).of(schema)


class _Fitters:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Fit] = {}

    def of(self, schema: Any) -> Fit:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self.of(self._named[schema]) if schema in self._named else _plain(schema)
        kind, logical = schema["type"], schema.get("logicalType")
        if isinstance(kind, list | dict) or kind in self._named:
            return self.of(kind)
        plain = self._by_kind(kind, schema)
        parse = _LOGICAL.get(logical) if isinstance(logical, str) else None
        if parse is _decimal:
            parse = _sized(schema["precision"] - schema.get("scale", 0))
        if parse is None:
            return plain
        return lambda value: parsed if (parsed := parse(value)) is not None else plain(value)

    def _by_kind(self, kind: str, schema: Any) -> Fit:
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _each(self.of(schema["items"]))
        if kind == "map":
            return _values(self.of(schema["values"]))
        if kind == "enum":
            return _one_of(schema["name"], tuple(schema["symbols"]))
        return _fixed(schema["size"]) if kind == "fixed" else _plain(kind)

    def _record(self, schema: Any) -> Fit:
        name = schema["name"]
        if name in self._made:
            return lambda value: self._made[name](value)  # it may be inside itself
        fields: dict[str, tuple[Fit, bool]] = {}

        def fit_record(value: Any) -> Any:
            if type(value) is not dict:
                raise Misfit(f"a {name} is a dict, not {type(value).__name__}")
            for key in value:
                if key not in fields:
                    raise Misfit(f"{name} has no such field", str(key))
            made = {}
            for field, (fit, is_needed) in fields.items():
                if field in value:
                    try:
                        made[field] = fit(value[field])
                    except Misfit as error:
                        raise error.inside(field) from None
                elif is_needed:
                    raise Misfit(f"{name} needs it, and it has no default", field)
            return made

        self._made[name] = fit_record
        for field in schema["fields"]:
            fields[field["name"]] = self.of(field["type"]), "default" not in field
        return fit_record

    def _union(self, branches: list[Any]) -> Fit:
        # Doubles first: a float rounds nearly all numbers that a double holds.
        ordered = sorted(branches, key=lambda branch: bool(branch == "float"))
        fits = [(self._branch(branch), self.of(branch)) for branch in ordered]
        is_named = sum(name != "null" for name, _ in fits) > 1

        def fit_union(value: Any) -> Any:
            reasons = []
            for name, fit in fits:
                try:
                    fitted = fit(value)
                except Misfit as error:
                    reasons.append(str(error))
                    continue
                # With its branch: fastavro would choose another one, and round.
                return (name, fitted) if is_named else fitted
            raise Misfit(f"it fits no branch of its union: {'; '.join(reasons)}")

        return fit_union

    def _branch(self, schema: Any) -> str:
        """How fastavro calls a branch of a union: its type or, if that has a name, the name."""
        if isinstance(schema, str):
            return schema
        return str(schema.get("name", schema["type"]))


def _plain(kind: str) -> Fit:
    if kind in _INTEGERS:
        bound = _INTEGERS[kind]

        def fit_integer(value: Any) -> Any:
            if type(value) is not int or not -bound <= value < bound:
                raise _not(value, kind)
            return value

        return fit_integer
    if kind in ("float", "double"):
        return lambda value: _float(value, kind)
    types = _TYPES[kind]

    def fit_type(value: Any) -> Any:
        if type(value) not in types:
            raise _not(value, kind)
        return value

    return fit_type


def _float(value: Any, kind: str) -> float:
    if type(value) in (int, float) and holds(kind, value):
        return float(value)
    raise _not(value, kind)


def _not(value: Any, kind: str) -> Misfit:
    return Misfit(f"{str(value)[:40]!r} ({type(value).__name__}) is no {kind}")


def _each(inner: Fit) -> Fit:
    def fit_list(value: Any) -> Any:
        if type(value) is not list:
            raise _not(value, "array")
        made = []
        for number, each in enumerate(value):
            try:
                made.append(inner(each))
            except Misfit as error:
                raise error.inside(f"[{number}]") from None
        return made

    return fit_list


def _values(inner: Fit) -> Fit:
    def fit_map(value: Any) -> Any:
        if type(value) is not dict or not all(type(key) is str for key in value):
            raise Misfit(f"a map is a dict with texts as keys, not {str(value)[:40]}")
        made = {}
        for key, each in value.items():
            try:
                made[key] = inner(each)
            except Misfit as error:
                raise error.inside(f"[{key!r}]") from None
        return made

    return fit_map


def _one_of(name: str, symbols: tuple[str, ...]) -> Fit:
    def fit_enum(value: Any) -> Any:
        if type(value) is not str or value not in symbols:
            raise _not(value, f"{name} ({', '.join(symbols)})")
        return value

    return fit_enum


def _fixed(size: int) -> Fit:
    def fit_fixed(value: Any) -> Any:
        if type(value) is not bytes or len(value) != size:
            raise _not(value, f"fixed of {size} bytes")
        return value

    return fit_fixed


# Each returns None for what is written as its plain type, such as a number of microseconds.


def _decimal(value: Any) -> Any:
    if type(value) is int:
        value = Decimal(value)
    elif type(value) is str:
        try:
            value = decimal_of(value)
        except Unfit:
            return None
    if not isinstance(value, Decimal):
        return None
    if not value.is_finite():
        raise _not(value, "number")
    return value


def _sized(whole: int) -> Fit:
    """A decimal with so many digits before its point, which fastavro does not count."""

    def fit_decimal(value: Any) -> Any:
        found = _decimal(value)
        if not found:
            return found if found is None else Decimal(0)  # 0e9 is no long number
        if found.adjusted() >= whole:
            raise Misfit(f"{found} has more than {whole} digits before its point")
        return found

    return fit_decimal


def _instant(value: Any) -> Any:
    found = _parsed(datetime, moment_of, value)
    if found is not None and found.tzinfo is None:
        raise Misfit(f"{value} has no zone, so it is no instant")
    return found


def _local(value: Any) -> Any:
    return _without_zone(_parsed(datetime, moment_of, value))


def _date(value: Any) -> Any:
    if isinstance(value, datetime):
        raise _not(value, "date")
    return _parsed(date, date_of, value)


def _time(value: Any) -> Any:
    return _without_zone(_parsed(time, time_of, value))


def _without_zone(found: Any) -> Any:
    if found is not None and found.tzinfo is not None:
        raise Misfit(f"{found} has a zone, which the field does not keep")
    return found


def _uuid(value: Any) -> Any:
    if type(value) is not str:
        return value if isinstance(value, UUID) else None
    try:
        return UUID(value)
    except ValueError:
        raise _not(value, "UUID") from None


def _in_millis(parse: Fit) -> Fit:
    """The same for a field of milliseconds, which would cut off the rest."""

    def fit_millis(value: Any) -> Any:
        found = parse(value)
        if found is not None and found.microsecond % 1000:
            raise Misfit(f"{value} has microseconds, and the field holds milliseconds")
        return found

    return fit_millis


def _parsed(kind: type, parse: Callable[[str], Any], value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if type(value) is not str:
        return None
    try:
        return parse(value)
    except Unfit as error:
        raise Misfit(f"{value[:40]!r}: {error}") from None


_LOGICAL: dict[str, Fit] = {
    "decimal": _decimal,
    "uuid": _uuid,
    "date": _date,
    "time-millis": _in_millis(_time),
    "time-micros": _time,
    "timestamp-millis": _in_millis(_instant),
    "timestamp-micros": _instant,
    "local-timestamp-millis": _in_millis(_local),
    "local-timestamp-micros": _local,
}
