"""`pathlib.Path` on a simulated disk, as far as Headrace uses it."""

from __future__ import annotations

from typing import ClassVar

from headrace.testing.simulator.machine.disk import Directory
from headrace.testing.simulator.machine.syscalls import Syscalls


class SimulatedPath:
    """An absolute name without dots, and calls on what has it.

    Not a `pathlib.PurePath`: taking names apart took a tenth of a schedule's time.
    """

    system: ClassVar[Syscalls]
    __slots__ = ("_text",)

    def __init__(self, path: object) -> None:
        text = str(path)
        self._text = text.rstrip("/") or text[:1]

    def __str__(self) -> str:
        return self._text

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"SimulatedPath({self._text!r})"

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulatedPath) and other._text == self._text

    def __truediv__(self, name: object) -> SimulatedPath:
        return SimulatedPath(f"{self._text.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self._text.rpartition("/")[2]

    @property
    def parent(self) -> SimulatedPath:
        return SimulatedPath(self._text.rpartition("/")[0] or "/")

    @property
    def parents(self) -> list[SimulatedPath]:
        found = [self]
        while found[-1]._text != "/":
            found.append(found[-1].parent)
        return found[1:]

    def with_name(self, name: str) -> SimulatedPath:
        return self.parent / name

    def absolute(self) -> SimulatedPath:
        return self

    def expanduser(self) -> SimulatedPath:
        return self

    def exists(self) -> bool:
        return self.system.disk.find(str(self)) is not None

    def is_dir(self) -> bool:
        return isinstance(self.system.disk.find(str(self)), Directory)

    def read_bytes(self) -> bytes:
        return self.system.read(str(self))

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self.system.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        self.system.rmdir(str(self))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.system.mkdir(str(self))
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise
