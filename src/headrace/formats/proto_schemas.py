"""Schemas of Protobuf: text, descriptors and generated classes as sets of file descriptors.

A set of file descriptors has everything that is needed to read a message, and travels to tasks,
which need no generated code. Text is compiled by protoc, which grpcio-tools brings.
"""

from __future__ import annotations

import base64
import binascii
import functools
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.formats.format import extra

MAIN = "main.proto"
_COMPILE_S = 60
_GOOGLE = "google/protobuf/"


def of_class(message: Any) -> tuple[bytes, str, str]:
    """The files behind a generated class, the name of its message, and that of its file."""
    descriptor = message.DESCRIPTOR
    files = _descriptors().FileDescriptorSet()
    _add_with_needed(descriptor.file, files, set())
    return files.SerializeToString(), descriptor.full_name, descriptor.file.name


def _add_with_needed(file: Any, files: Any, seen: set[str]) -> None:
    """Adds a file to a set, after those that it imports."""
    if file.name not in seen:
        seen.add(file.name)
        for needed in file.dependencies:
            _add_with_needed(needed, files, seen)
        file.CopyToProto(files.file.add())


def of_text(text: str, others: Mapping[str, str] | None = None) -> bytes:
    """The files of a schema, with all that it imports. ValueError if it cannot be compiled.

    `text` is a .proto file, or a file descriptor in base64, as some clients register it."""
    direct = _of_base64(text)
    if direct is not None:
        return direct
    extra("grpc_tools.protoc", "grpcio-tools", "protobuf")
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as directory:
        where = Path(directory)
        for name, body in {**(others or {}), MAIN: text}.items():
            path = (where / name).resolve()
            if not path.is_relative_to(where.resolve()):
                raise ValueError(f"it imports {name!r:.80}, which is no name of a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        made = where / "made.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{where}", "--include_imports"]
        ran = subprocess.run(
            [*command, f"--descriptor_set_out={made}", MAIN],
            capture_output=True, text=True, timeout=_COMPILE_S, cwd=where, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            said = " ".join(ran.stderr.replace(str(where), "").split())
            raise ValueError(f"protoc refuses it: {said[:300]}")
        return made.read_bytes()


def _of_base64(text: str) -> bytes | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    file = _descriptors().FileDescriptorProto()
    try:
        file.ParseFromString(raw)
    except extra("google.protobuf.message", "protobuf", "protobuf").DecodeError:
        return None
    files, seen = _descriptors().FileDescriptorSet(), set[str]()
    for needed in file.dependency:
        if not needed.startswith(_GOOGLE):
            raise ValueError(f"it imports {needed}, which is not in it")
        _add_with_needed(_google_file(needed), files, seen)
    files.file.append(file)
    return bytes(files.SerializeToString())


def _google_file(name: str) -> Any:
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    return extra(module, "protobuf", "protobuf").DESCRIPTOR


def registered_text(files: bytes, main: str) -> str:
    """A file as a registry takes it from a program that has no text: its descriptor in base64."""
    found = _descriptors().FileDescriptorSet.FromString(files)
    file = next(each for each in found.file if each.name == main)
    others = [name for name in file.dependency if not name.startswith(_GOOGLE)]
    if others:
        raise ValueError(f"{main} imports {others[0]}: only Google's own files can be imported")
    return base64.b64encode(file.SerializeToString()).decode()


def main_file(files: bytes) -> str:
    """The name of the file that no other imports: the last one, as protoc writes them."""
    return str(_descriptors().FileDescriptorSet.FromString(files).file[-1].name)


def message_name(files: bytes, main: str, path: tuple[int, ...]) -> str:
    """The full name of the message that a path of indexes names in a file."""
    found = _descriptors().FileDescriptorSet.FromString(files)
    file = next(each for each in found.file if each.name == main)
    inside, names = file.message_type, [file.package] if file.package else []
    for index in path:
        if not 0 <= index < len(inside):
            raise ValueError(f"the message {list(path)} is not in its schema")
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return ".".join(names)


def message_path(files: bytes, main: str, name: str) -> tuple[int, ...]:
    """The path of indexes of a message in its file."""
    found = _descriptors().FileDescriptorSet.FromString(files)
    file = next(each for each in found.file if each.name == main)
    wanted = name.removeprefix(f"{file.package}." if file.package else "").split(".")
    inside, path = file.message_type, []
    for part in wanted:
        names = [each.name for each in inside]
        if part not in names:
            raise ValueError(f"{main} has no message {name}; it has {', '.join(names) or 'none'}")
        path.append(names.index(part))
        inside = inside[path[-1]].nested_type
    return tuple(path)


@functools.lru_cache(maxsize=256)
def message_class(files: bytes, name: str) -> Any:
    """A class for a message of these files."""
    pool = extra("google.protobuf.descriptor_pool", "protobuf", "protobuf").DescriptorPool()
    waiting = list(_descriptors().FileDescriptorSet.FromString(files).file)
    known: set[str] = set()
    while waiting:
        ready = [file for file in waiting if known.issuperset(file.dependency)]
        if not ready:
            raise ValueError(f"{waiting[0].name} imports a file that is not there")
        for file in ready:
            pool.Add(file)
            known.add(file.name)
        waiting = [file for file in waiting if file.name not in known]
    factory = extra("google.protobuf.message_factory", "protobuf", "protobuf")
    try:
        return factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except (KeyError, TypeError) as error:
        raise ValueError(f"there is no message {name}: {error}") from None


def _descriptors() -> Any:
    return extra("google.protobuf.descriptor_pb2", "protobuf", "protobuf")
