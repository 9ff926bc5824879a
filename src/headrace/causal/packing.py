"""How the answers of a unit of work are packed for its report and for the commit.

There may be thousands of them in one epoch. Names are alike and so are answers: compressed, they
take about a third of the bytes that Spark has to carry to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from headrace.plan.epoch import Determinant

_Rows = list[tuple[str, bytes, str, bytes, str]]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Rows)
_codec = pa.Codec("zstd", compression_level=1)
_SIZE = 8
"""The size of the rows before compression stands first, in this many bytes."""


def pack_determinants(found: Iterable[Determinant]) -> bytes:
    """Determinants as one cell; empty bytes if there are none."""
    rows = [(d.name, d.request, d.kind, d.value, d.message) for d in found]
    if not rows:
        return b""
    data = _encoder.encode(rows)
    return len(data).to_bytes(_SIZE, "big") + _codec.compress(data, asbytes=True)


def unpack_determinants(data: bytes) -> list[Determinant]:
    """The determinants in a cell that `pack_determinants` made."""
    if not data:
        return []
    size = int.from_bytes(data[:_SIZE], "big")
    rows = _codec.decompress(data[_SIZE:], size, asbytes=True)
    return [Determinant(*row) for row in _decoder.decode(rows)]
