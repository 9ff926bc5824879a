"""What Arrow cells consist of, inside lists, structs and maps too: for checks of every value."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sinks.fitting.arrays import is_list


def leaves(cells: pa.Array) -> Iterator[pa.Array]:
    """The arrays of plain types inside, without what lies under a null or outside of a slice."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        yield from leaves(cells.dictionary_decode())
    elif pa.types.is_struct(kind):
        for each in cells.flatten():
            yield from leaves(each)
    elif pa.types.is_map(kind):
        # `keys` and `items` have all that the buffers have.
        entries = pa.struct([kind.key_field, kind.item_field])
        yield from leaves(pc.list_flatten(cells.cast(pa.list_(entries))))
    elif is_list(kind):
        yield from leaves(pc.list_flatten(cells))
    else:
        yield cells
