"""`Computation`: the class that users extend.

One object stands for one key. Its declared fields are the state. Attributes that `__init__` and
`setup` set on the instance are parameters: all keys share them, and hooks must not change them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import InvalidPipeline
from headrace.model.context import service_names
from headrace.model.functions import check_hooks, mentions
from headrace.model.state import Field, check_names, declared_fields
from headrace.model.values.names import no_option
from headrace.model.values.time import Duration, duration

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.model.context import Context, TableContext
    from headrace.model.record import Record, Timer


CLASS_OPTIONS = ("ordered", "ttl", "clock", "version")


class ComputationOptions:
    """The options in the class line: `class C(Computation, ordered=True)`."""

    __slots__ = ("clock", "ordered", "ttl_us", "version")

    def __init__(self, ordered: bool, ttl_us: int | None, clock: str, version: int) -> None:
        self.ordered, self.ttl_us, self.clock, self.version = ordered, ttl_us, clock, version


class Computation:
    """User code that runs in the context of one key at a time.

    - `ordered`: records wait for the watermark and arrive in time order.
    - `ttl`: a key that was not written for that long is forgotten, with its timers.
    - `clock`: the clock of TTLs, "event" or "wall".
    - `version`: raise it when the meaning of the state changes, and give `migrate`.
    """

    options: ClassVar[ComputationOptions] = ComputationOptions(False, None, "event", 1)

    lag_us: int = 0
    """How far behind its input watermark it may produce: its output watermark lags as much."""

    def __init_subclass__(
        cls,
        *,
        ordered: bool | None = None,
        ttl: Duration | None = None,
        clock: str | None = None,
        version: int | None = None,
        **rest: Any,
    ) -> None:
        try:
            super().__init_subclass__(**rest)
        except TypeError:
            if not rest:
                raise
            raise no_option(cls.__qualname__, next(iter(rest)), CLASS_OPTIONS) from None
        check_names(cls, Computation)
        base = cls.options
        if clock not in (None, "event", "wall"):
            raise InvalidPipeline(f'{cls.__qualname__}: clock is "event" or "wall", not {clock!r}')
        if version is not None and (type(version) is not int or not 1 <= version < 2**16):
            raise InvalidPipeline(
                f"{cls.__qualname__}: version is a number from 1 on, not {version!r}"
            )
        cls.options = ComputationOptions(
            base.ordered if ordered is None else ordered,
            base.ttl_us if ttl is None else duration(ttl, what=f"{cls.__qualname__}: ttl"),
            base.clock if clock is None else clock,
            base.version if version is None else version,
        )

    reads_values: bool = True
    """Whether `process_table` reads values. If it only passes rows on, values are not turned into
    columns, which values of mixed types might not fit."""

    calls_users: bool = True
    """Whether hooks run user code, about which the engine knows nothing."""

    counts_late: bool = True
    """Whether late records are counted here. False if an earlier step with the same watermark has
    counted them."""

    follows: bool = False
    """Whether the output of a record replaces it, and so has the record's origin."""

    prompt: bool = False
    """Whether all output of a record is sent in the epoch of that record, never by a timer."""

    def setup(self) -> None:
        """Runs once per worker process: open clients, load models."""

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Runs for each record of this key."""

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """Runs when a timer of this key fires."""

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Runs once per slot and epoch, instead of `process_record`, over Arrow columns."""

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Beside `process_table`: all timers of the slot that are due, as one table.

        Its columns are `key`, `key_index`, `tag`, `timestamp` and `clock`. It runs after
        `process_table`, with the same `ctx`, and also if there were no records.
        """

    def combine_table(self, table: pa.Table) -> pa.Table:
        """Optional, beside `process_table`: combines records before they are sent to their slot.

        Runs in the task that produces the records. The table has their columns, `key_index` and
        `timestamp`. The result has `key_index` and the columns that `process_table` then gets
        instead. Results must not depend on how often, or over which records, it runs.
        """
        return table

    @classmethod
    def migrate(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """Turns the fields that `version` of the class wrote into the fields of this version.

        A Map is a dict of its entries. A Map that is not returned stays as it is; a field that is
        not returned gets its initial value.
        """
        return fields


class Shape:
    """What the engine knows about a computation class: its fields and its hooks."""

    __slots__ = (
        "cls",
        "combines",
        "combines_rows",
        "fields",
        "maps",
        "options",
        "plain",
        "reads_maps",
        "takes_records",
        "takes_table",
        "takes_timer_tables",
        "takes_timers",
        "uses_services",
    )

    def __init__(self, cls: type[Computation]) -> None:
        self.cls = cls
        self.options = cls.options
        self.fields: tuple[Field, ...] = declared_fields(cls)
        self.plain = tuple(f for f in self.fields if not f.is_map)
        self.maps = tuple(f for f in self.fields if f.is_map)
        # An older version of the class may have had maps.
        self.reads_maps = bool(self.maps) or self.options.version > 1
        self.takes_records = cls.process_record is not Computation.process_record
        self.takes_timers = cls.process_timer is not Computation.process_timer
        self.takes_table = cls.process_table is not Computation.process_table
        self.takes_timer_tables = cls.process_timers is not Computation.process_timers
        self.combines_rows = hasattr(cls, "combine_rows")  # only Headrace's own windows have it
        self.combines = self.combines_rows or cls.combine_table is not Computation.combine_table
        own = [base for base in cls.__mro__ if base not in (Computation, object)]
        self.uses_services = mentions(own, service_names())
        name = cls.__qualname__
        check_hooks(cls)
        if self.takes_records and self.takes_table:
            raise InvalidPipeline(f"{name} has process_record and process_table; keep one of them")
        if not (self.takes_records or self.takes_table):
            hint = _meant(cls, "process_record", "process", "on_record", "process_element")
            raise InvalidPipeline(f"{name} has neither process_record nor process_table{hint}")
        meant = _meant(cls, "process_timer", "on_timer", "onTimer")
        if meant and not self.takes_timers and mentions(own, frozenset({"set_timer"})):
            raise InvalidPipeline(f"{name} sets timers, but has no process_timer{meant}")
        if self.combines and not self.takes_table:
            raise InvalidPipeline(f"{name} has combine_table, which needs process_table beside it")
        if self.takes_table and self.options.ordered:
            raise InvalidPipeline(
                f"{name}: process_table sees an epoch's records at once; "
                "ordered=True needs process_record"
            )
        if self.takes_table and (self.takes_timers or self.options.ttl_us is not None):
            raise InvalidPipeline(
                f"{name}: process_timer and a ttl on the class need process_record; with "
                'process_table write process_timers, or give fields a ttl: state(0, ttl="1h")'
            )
        if self.takes_timer_tables and not self.takes_table:
            raise InvalidPipeline(f"{name} has process_timers, which needs process_table beside it")
        if self.takes_table and any(field.ttl_us is not None for field in self.maps):
            raise InvalidPipeline(
                f"{name}: a Map with a ttl needs process_record; with process_table set timers "
                "and remove the entries there"
            )


def _meant(cls: type[Computation], hook: str, *others: str) -> str:
    """A hint for a method that looks like a misspelled hook."""
    own = {n for base in cls.__mro__ if base is not Computation for n in vars(base)}
    own -= {*vars(Computation), *vars(object)}
    close = [n for n in others if n in own] or difflib.get_close_matches(hook, own, n=1)
    return f" (it has {close[0]}: did you mean {hook}?)" if close else ""


def object_class(template: Computation, fields: Iterable[Field]) -> type[Computation]:
    """A class whose instances are key objects: parameters on the class, state on the object.

    If a hook assigns an undeclared attribute, it is set on the object, where the check at the
    seal finds it. The parameters themselves cannot be changed that way.
    """
    parameters = {
        name: staticmethod(value) if hasattr(value, "__get__") else value
        for name, value in vars(template).items()
    }
    cls = type(template)
    # Hide what state() put into the class. If the class attribute is an object of a Python class,
    # which might become a descriptor at any time, `self.count` takes twice the time.
    members: dict[str, Any] = {field.name: None for field in fields}
    members |= {**parameters, "__module__": cls.__module__}
    bound = type(cls.__name__, (cls,), members)
    bound.__qualname__ = cls.__qualname__
    return bound
