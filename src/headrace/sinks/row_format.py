"""A file format as sinks use it: rows in, the bytes of files out.

A format must not know where its files will lie, nor how an epoch becomes visible: in a directory of
a filesystem (`files`), or under a manifest in a store (`stored/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from headrace.model.sink import EncodedFile
from headrace.model.values.rows import Rows


class RowFormat(ABC):
    """Encodes rows as the bytes of files. Equal rows give equal bytes."""

    suffix: str
    has_directories: bool = False
    """Whether its files lie in directories that depend on their rows."""
    schema: pa.Schema | None = None
    """The schema that every file has, if the user gave one."""

    @abstractmethod
    def encode(self, rows: Rows) -> bytes:
        """The bytes of a file with these rows; b"" without rows, and then no file appears."""

    def encode_files(self, rows: Rows) -> Sequence[EncodedFile]:
        """The same rows as the files that readers will see, each with its directory."""
        return [EncodedFile("", self.suffix, self.encode(rows), len(rows))]

    def is_split(self, head: bytes) -> bool:
        """Whether a staged part that starts with these bytes holds several files."""
        return False

    def split(self, data: bytes) -> Sequence[tuple[str, bytes]]:
        """(directory, bytes) of each file in a staged part that holds several."""
        return [("", data)]
