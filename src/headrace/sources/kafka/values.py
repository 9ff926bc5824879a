"""What becomes of a message: its value, its columns, or the reason why it is no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

from headrace.errors import InvalidPipeline
from headrace.formats.format import Format
from headrace.model.source import Reading, Rejected
from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.names import did_you_mean
from headrace.model.values.time import END
from headrace.sources.files.lines import RAW_CHARACTERS_MAX, not_utf8
from headrace.sources.json_values import MALFORMED, brackets, decode, one_value

COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "headers")
TOMBSTONES = ("reject", "keep", "skip")
_NONE = 'the message has no value (a tombstone): say what it means, tombstones="keep" or "skip"'


def _bytes(raw: bytes) -> Any:
    return raw


def _text(raw: bytes) -> Any:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(not_utf8(error, raw)) from None


def _json(raw: bytes) -> Any:
    return one_value(raw, 'read such messages with value="bytes"')


KINDS: dict[str, Callable[[bytes], Any]] = {"bytes": _bytes, "text": _text, "json": _json}


def checked_kind(given: Any, where: str) -> str:
    """The name of a kind of value."""
    if not isinstance(given, str) or given not in KINDS:
        known = ", ".join(f'"{kind}"' for kind in KINDS)
        hint = did_you_mean(given, KINDS) if isinstance(given, str) else ""
        raise InvalidPipeline(
            f"{where} is {known}, or for value= a schema or a format (headrace.formats), not "
            f"{given!r:.80}{hint}"
        )
    return given


def checked_columns(given: Any) -> dict[str, str]:
    """Parts of a message -> the names of their columns."""
    if isinstance(given, str):
        given = (given,)
    wanted = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for part, name in wanted.items():
        if part not in COLUMNS:
            raise InvalidPipeline(
                f"sources.kafka: columns= has no {part!r}; there are {', '.join(COLUMNS)}"
                f"{did_you_mean(str(part), COLUMNS)}"
            )
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"sources.kafka: columns=: {part!r} needs a name, not {name!r}")
    if len(set(wanted.values())) != len(wanted):
        raise InvalidPipeline("sources.kafka: columns= gives two parts one name")
    return wanted


class Decoding:
    """How messages become values; it travels to tasks."""

    def __init__(
        self, value: str | Format, key: str, columns: Mapping[str, str], tombstones: str
    ) -> None:
        """`value` is the name of a kind, or a format."""
        self.value = value
        self.key = key
        self.columns = dict(columns)
        self.tombstones = tombstones

    def reading(self, messages: Sequence[Any], base: int, stamped: bool) -> Reading:
        """The records of messages; `stamped`: the time of a record is that of its message."""
        offsets = np.fromiter([m.offset() for m in messages], np.int64, len(messages))
        raws = [message.value() for message in messages]
        kept: Sequence[int] = range(len(raws))
        rejected: list[Rejected] = []
        values = self._all_at_once(raws)
        if values is None:
            values, kept, rejected = self._one_by_one(messages, raws, offsets + base)
        reading = Reading(
            offsets[list(kept)] + base if len(kept) < len(raws) else offsets + base,
            values=values,
            rejected=rejected,
            digest=_digest(messages, raws, offsets, rejected if self._is_typed else ()),
            exact=self._is_typed,
        )
        if stamped:
            stamps = np.fromiter((messages[i].timestamp()[1] for i in kept), np.int64, len(kept))
            # A product that overflows may look like a valid time. These ends are refused.
            reading.timestamps = stamps.clip(-(END // 1000), END // 1000) * 1000
        return reading

    @property
    def _is_typed(self) -> bool:
        return not isinstance(self.value, str)

    def _all_at_once(self, raws: list[bytes | None]) -> list[Any] | None:
        """The values, if nothing is wrong with any of them."""
        if self.columns or None in raws:
            return None
        if self.value == "bytes":
            return list(raws)
        if self.value != "json":
            return None
        try:
            values = [decode(raw) for raw in raws]  # type: ignore[arg-type]
        except MALFORMED:
            return None
        # Where records are flat, their own brackets begin messages, and few others are left.
        together = b"\0".join(raws)  # type: ignore[arg-type]
        if brackets(together) - together.count(b"\0{") < NESTED_MAX:
            return values
        if any(brackets(raw) > NESTED_MAX for raw in raws):  # type: ignore[arg-type]
            return None
        return values

    def _one_by_one(
        self, messages: Sequence[Any], raws: list[bytes | None], positions: Any
    ) -> tuple[list[Any], list[int], list[Rejected]]:
        read = KINDS[self.value] if isinstance(self.value, str) else self.value.decode
        values: list[Any] = []
        kept: list[int] = []
        rejected: list[Rejected] = []
        for i, raw in enumerate(raws):
            if raw is None and self.tombstones == "skip":
                continue
            try:
                if raw is None and self.tombstones == "reject":
                    raise ValueError(_NONE)
                value = None if raw is None else read(raw)
                values.append(self._with_columns(value, messages[i]) if self.columns else value)
            except ValueError as error:
                place = f"{messages[i].topic()}/{messages[i].partition()}, offset "
                reason = f"{place}{messages[i].offset()}: {error}"
                rejected.append(Rejected(int(positions[i]), _shown(raw), reason))
                continue
            kept.append(i)
        return values, kept, rejected

    def _with_columns(self, value: Any, message: Any) -> dict[str, Any]:
        row = dict(value) if isinstance(value, dict) else {"value": value}
        for part, name in self.columns.items():
            if name in row:
                raise ValueError(
                    f"the value has a field {name!r} already: give the column another name, "
                    f'columns={{"{part}": "kafka_{part}"}}'
                )
            row[name] = self._cell(part, message)
        return row

    def _cell(self, part: str, message: Any) -> Any:
        if part == "key":
            raw = message.key()
            return None if raw is None else KINDS[self.key](raw)
        if part == "headers":
            return [[name, cell] for name, cell in message.headers() or ()]
        if part == "timestamp":
            return message.timestamp()[1] * 1000
        return getattr(message, part)()


def _shown(raw: bytes | None) -> str:
    text = (raw or b"")[: 4 * RAW_CHARACTERS_MAX].decode("utf-8", "backslashreplace")
    return text[:RAW_CHARACTERS_MAX]


def _digest(
    messages: Sequence[Any], raws: list[bytes | None], offsets: Any, rejected: Sequence[Rejected]
) -> str:
    """Of keys, values and offsets: compaction may remove a record that was read before. And a
    registry may know a schema later, so that what was rejected before is not."""
    digest = xxhash.xxh3_128(offsets.tobytes())
    digest.update(np.fromiter((len(raw or b"") for raw in raws), np.int64, len(raws)).tobytes())
    digest.update(b"".join(raw or b"" for raw in raws))
    digest.update(b"".join(message.key() or b"" for message in messages))
    digest.update(np.fromiter((bad.position for bad in rejected), np.int64).tobytes())
    return digest.hexdigest()
