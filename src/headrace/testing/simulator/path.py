"""`pathlib.Path` on a simulated disk, as far as Headrace uses it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar

from headrace.testing.simulator.disk import Directory
from headrace.testing.simulator.syscalls import Syscalls


class SimulatedPath(PurePosixPath):
    """Names, and calls on what has them."""

    system: ClassVar[Syscalls]
    __slots__ = ()

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
