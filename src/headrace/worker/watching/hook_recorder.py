"""Records hook calls: the input, state changes, productions and service calls of each hook.

An observed runtime gives key objects a class whose hooks wrap the user's hooks and record each
call. An ordinary run does not know this module. Invariant: recording does not change what hooks
do, so an epoch has the same digests with and without it.
"""

from __future__ import annotations

import pdb
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.record import Record, Timer
from headrace.model.values.codec import decode_value, packed
from headrace.model.values.keys import decode_key
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.state.cache import WorkerCache
from headrace.state.view import CellId
from headrace.store.store import Store
from headrace.worker.records.context import HookContext
from headrace.worker.runtime import Live, Runtime
from headrace.worker.tables.context import BareTableContext
from headrace.worker.tables.keyed_context import KeyedTableContext
from headrace.worker.watching.asked import Asked, asking

CALLS_KEPT_MAX = 100_000
ROWS_SHOWN_MAX = 20

RECORD, TIMER, TABLE = "record", "timer", "table"


class Production(msgspec.Struct, frozen=True):
    """One production of a hook."""

    stream: str
    value: Any
    timestamp: int | None
    """None for a whole table."""


class TimerSet(msgspec.Struct, frozen=True):
    """A timer or hold that a hook set, or removed (`at` is None)."""

    clock: str
    """"event", "wall" or "hold"."""
    tag: Any
    at: int | None


class HookCall(msgspec.Struct):
    """One call of a hook."""

    computation: str
    label: str
    """The unit of work in which it ran."""
    key: Any
    """None without a key, and for a table."""
    ordinal: int
    """Its number among the key's hooks in the epoch."""
    kind: str
    """"record", "timer" or "table"."""
    timestamp: int | None = None
    stream: str = ""
    value: Any = None
    late: bool = False
    tag: Any = None
    clock: str = ""
    rows: int = 0
    before: dict[str, Any] = {}
    """The values, before the hook, of fields and map entries that it changed."""
    after: dict[str, Any] = {}
    produced: list[Production] = []
    timers: list[TimerSet] = []
    asked: list[Asked] = []
    error: str | None = None


class Observer:
    """Collects the hook calls that were asked for."""

    def __init__(
        self,
        computation: str | None = None,
        key: Any = None,
        *,
        debug: bool = False,
    ) -> None:
        """None selects every computation, or every key. `debug` stops in the first hook."""
        self._computation, self._key, self._debug = computation, key, debug
        self._of_key: dict[tuple[str, str, bytes], list[HookCall]] = {}
        self._kept = 0
        self.total = 0

    @property
    def calls(self) -> list[HookCall]:
        """The calls, in the order of units of work, keys and hooks."""
        return [call for calls in self._of_key.values() for call in calls]

    def wants(self, node: Node, key: Any) -> bool:
        """Whether calls for this key are recorded."""
        if self._computation is not None and node.name != self._computation:
            return False
        return self._key is None or key == self._key

    def add(self, key_bytes: bytes, call: HookCall) -> None:
        """Adds a call. Calls of a second pass over a key's hooks replace those of the first."""
        of_key = self._of_key.setdefault((call.label, call.computation, key_bytes), [])
        if of_key and call.ordinal <= of_key[-1].ordinal:
            self.total -= len(of_key)
            self._kept -= len(of_key)
            of_key.clear()
        self.total += 1
        if self._kept < CALLS_KEPT_MAX:
            self._kept += 1
            of_key.append(call)

    def run(self, hook: Callable[..., None], *given: Any) -> None:
        """Runs a hook, with the debugger if `debug` was given."""
        if not self._debug:
            hook(*given)
            return
        self._debug = False
        # At a terminal it reads lines with line editing; otherwise without, for scripts.
        streams = {} if sys.stdin.isatty() else {"stdin": sys.stdin, "stdout": sys.stdout}
        debugger = _Debugger(nosigint=True, **streams)  # type: ignore[arg-type]
        debugger.runcall(hook, *given)
        if debugger.left:
            raise KeyboardInterrupt


class _Debugger(pdb.Pdb):
    """Remembers that its user has quit, because `runcall` does not report it."""

    left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()


class ObservedRuntime(Runtime):
    """A runtime whose hook calls are recorded."""

    def __init__(
        self, topology: Topology, store: Store, cache: WorkerCache, observer: Observer
    ) -> None:
        super().__init__(topology, store, cache)
        self._observer = observer
        self._watched: set[str] = set()

    def live(self, node: Node) -> Live:
        found = super().live(node)
        if node.name not in self._watched:
            self._watched.add(node.name)
            found.object_class = _observed(found, self._observer)
        return found


def _observed(live: Live, observer: Observer) -> type[Computation]:
    base: Any = live.object_class

    def process_record(self: Any, record: Record[Any], ctx: HookContext) -> None:
        if not observer.wants(live.node, ctx.key):
            base.process_record(self, record, ctx)
            return
        call = _begun(live, ctx, RECORD)
        call.timestamp, call.stream, call.late = record.timestamp, record.stream, record.late
        call.value = decode_value(packed(record.value))  # the hook may change it
        _watch(live, observer, call, self, ctx, base.process_record, record)

    def process_timer(self: Any, timer: Timer, ctx: HookContext) -> None:
        if not observer.wants(live.node, ctx.key):
            base.process_timer(self, timer, ctx)
            return
        call = _begun(live, ctx, TIMER)
        call.timestamp, call.tag, call.clock = timer.timestamp, timer.tag, timer.clock
        _watch(live, observer, call, self, ctx, base.process_timer, timer)

    def process_table(self: Any, table: Any, ctx: BareTableContext) -> None:
        _watch_table(live, observer, self, ctx, base.process_table, table)

    def process_timers(self: Any, table: Any, ctx: BareTableContext) -> None:
        _watch_table(live, observer, self, ctx, base.process_timers, table)

    hooks = {"process_record": process_record, "process_timer": process_timer}
    if live.shape.takes_table:
        hooks = {"process_table": process_table, "process_timers": process_timers}
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    return type(base.__name__, (base,), {**hooks, **names})


def _begun(live: Live, ctx: HookContext, kind: str) -> HookCall:
    label = ctx.inside()[0].label
    return HookCall(live.node.name, label, None if live.node.keyless else ctx.key, ctx.hook, kind)


def _watch(
    live: Live,
    observer: Observer,
    call: HookCall,
    obj: Any,
    ctx: HookContext,
    hook: Callable[..., None],
    cause: Any,
) -> None:
    _, outputs, timers = ctx.inside()
    fields = _fields(live, obj)
    maps = {name: found.seen() for name, found in _maps(live, obj)}
    made = outputs.savepoint()
    set_before = timers.savepoint(ctx.key_bytes) if timers is not None else {}
    # Set on the object, where it precedes the class's method; `ctx.http` asks through it too.
    vars(ctx).update(asking(ctx, call.asked))
    try:
        observer.run(hook, obj, cause, ctx)
    except Exception as error:
        call.error = f"{type(error).__name__}: {error}"
        raise
    finally:
        vars(ctx).pop("ask", None)
        vars(ctx).pop("ask_many", None)
        _compare_state(live, obj, fields, maps, call)
        call.produced = [Production(s, decode_value(v), t) for s, v, t in outputs.since(made)]
        if timers is not None:
            call.timers = _changed_timers(set_before, timers.savepoint(ctx.key_bytes))
        observer.add(ctx.key_bytes, call)


def _fields(live: Live, obj: Any) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for field in live.shape.plain:
        try:
            found[field.name] = field.codec.encode(vars(obj)[field.name])
        except (TypeError, ValueError, KeyError):
            found[field.name] = None  # sealing raises the error
    return found


def _maps(live: Live, obj: Any) -> list[tuple[str, Map[Any, Any]]]:
    found = ((field.name, vars(obj).get(field.name)) for field in live.shape.maps)
    return [(name, entries) for name, entries in found if isinstance(entries, Map)]


def _compare_state(
    live: Live,
    obj: Any,
    fields: dict[str, bytes | None],
    maps: dict[str, dict[bytes, tuple[bytes | None, bytes | None]]],
    call: HookCall,
) -> None:
    before, after = {}, {}
    now = _fields(live, obj)
    for name, was in fields.items():
        if was != now[name]:
            before[name], after[name] = _shown(was), _shown(now[name])
    for name, entries in _maps(live, obj):
        try:
            seen = entries.seen()
        except (TypeError, ValueError):
            continue  # an entry that cannot be stored: sealing raises the error
        for entry, (stored, is_now) in seen.items():
            was = maps[name][entry][1] if entry in maps.get(name, {}) else stored
            if was != is_now:
                place = f"{name}[{decode_key(entry)!r}]"
                if was is not None:
                    before[place] = _shown(was)
                if is_now is not None:
                    after[place] = _shown(is_now)
    call.before, call.after = before, after


def _shown(data: bytes | None) -> Any:
    return None if data is None else decode_value(data)


def _changed_timers(
    before: dict[tuple[str, CellId], tuple[int, int] | None],
    after: dict[tuple[str, CellId], tuple[int, int] | None],
) -> list[TimerSet]:
    found = []
    for name, cell in dict.fromkeys([*before, *after]):
        if name == "waiting":
            continue
        was, now = before.get((name, cell)), after.get((name, cell))
        if (was, (name, cell) in before) == (now, (name, cell) in after):
            continue
        tag = decode_key(cell[2]) if cell[2] else None
        found.append(TimerSet(name, tag, None if now is None else now[0]))
    return found


def _rows_shown(live: Live, ctx: BareTableContext, keys: Sequence[Any], table: Any) -> Any:
    """The first rows that a hook got, or the first records, if it takes records as they are."""
    if live.node.template.reads_values or "tag" in table.schema.names:
        return table.slice(0, ROWS_SHOWN_MAX).to_pylist()
    found: list[dict[str, Any]] = []
    for given in ctx.inputs():
        rows = given.rows.slice(0, ROWS_SHOWN_MAX - len(found))
        rows.schema = None  # combined rows are not records of the stream
        owners, times = given.key_index.tolist(), rows.timestamps.tolist()
        for owner, time, value in zip(owners, times, rows.values(), strict=False):
            if live.node.combines:  # windows, whose accumulators are not readable
                value = {name: value[name] for name in ("start", "end", "count")}
            found.append({"key": keys[owner], "timestamp": time, "value": value})
    return found


def _watch_table(
    live: Live,
    observer: Observer,
    obj: Any,
    ctx: BareTableContext,
    hook: Callable[..., None],
    table: Any,
) -> None:
    keys = ctx.keys() if isinstance(ctx, KeyedTableContext) else [None]
    wanted = {i for i, key in enumerate(keys) if observer.wants(live.node, key)}
    if not wanted:
        hook(obj, table, ctx)
        return
    call = HookCall(live.node.name, ctx.label, None, 0, TABLE, rows=table.num_rows)
    call.value = _rows_shown(live, ctx, keys, table)
    own = type(ctx).produce_table

    def produce_table(made: Any, *, to: str | None = None, **more: Any) -> None:
        own(ctx, made, to=to, **more)
        rows = made if isinstance(made, dict) else made.to_pydict()
        stream = to or next(iter(live.node.outputs.values()), "")
        call.produced.append(Production(stream, rows, None))

    own_values = type(ctx).produce_values

    def produce_values(values: Any, *, to: str | None = None, **more: Any) -> None:
        own_values(ctx, values, to=to, **more)
        stream = to or next(iter(live.node.outputs.values()), "")
        call.produced.append(Production(stream, values, None))

    vars(ctx).update(produce_table=produce_table, produce_values=produce_values)
    try:
        observer.run(hook, obj, table, ctx)
    except Exception as error:
        call.error = f"{type(error).__name__}: {error}"
        raise
    finally:
        vars(ctx).pop("produce_table", None)
        vars(ctx).pop("produce_values", None)
        if isinstance(ctx, KeyedTableContext):
            for i, name, was, now in ctx.changes():
                if i in wanted:
                    place = f"{keys[i]!r}.{name}"
                    call.before[place], call.after[place] = was, now
        observer.add(ctx.label.encode(), call)
