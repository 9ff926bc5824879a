"""Checks single arguments of the builder's methods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.values.time import MILLISECOND, Duration, duration
from headrace.pipeline.graph.graph import To

TIMEOUT_US_MIN = 50 * MILLISECOND

_NAME_BYTES_MAX = 200
_NAME = re.compile(r"[^\W_][\w .:@#+-]{0,99}", re.UNICODE)


def instance_of(computation: Computation | type[Computation]) -> Computation:
    """A computation; if a class was given, an instance of it."""
    if isinstance(computation, type) and issubclass(computation, Computation):
        try:
            return computation()
        except TypeError as error:
            raise InvalidPipeline(
                f"{computation.__qualname__} needs parameters ({error}); pass an instance"
            ) from None
    if isinstance(computation, Computation):
        return computation
    raise InvalidPipeline(f"{computation!r} is not a Computation")


def ports_of(outputs: str | Sequence[str] | Mapping[str, str], where: str) -> dict[str, str]:
    """Port -> stream. A single output has the port ""."""
    if isinstance(outputs, str):
        ports = {"": outputs}
    elif isinstance(outputs, Mapping):
        ports = dict(outputs)
    else:
        ports = {s: s for s in outputs}
        if len(ports) != len(outputs):
            raise InvalidPipeline(f"{where}: an output stream is named twice")
        if len(ports) == 1:
            ports = {"": next(iter(ports))}
    for stream in ports.values():
        checked_name(stream, "a stream")
    if len(set(ports.values())) != len(ports):
        raise InvalidPipeline(f"{where}: two output ports name the same stream")
    return ports


def checked_name(name: Any, what: str) -> str:
    """Checks a name, which is used in paths and messages."""
    # A name is also used for a directory, where a non-ASCII character takes up to twelve bytes.
    fits = isinstance(name, str) and _NAME.fullmatch(name) and len(quote(name)) <= _NAME_BYTES_MAX
    if not fits:
        raise InvalidPipeline(
            f"{name!r} cannot name {what}: use letters, digits, spaces and _ . : @ # + -, "
            "beginning with a letter or digit, at most 100 characters (fewer beyond ASCII)"
        )
    return str(name)


def timeout_of(given: Duration | None, where: str) -> int | None:
    """A timeout in microseconds."""
    if given is None:
        return None
    micros = duration(given, what=f"{where}: timeout=")
    if micros < TIMEOUT_US_MIN:
        raise InvalidPipeline(f"{where}: timeout= is at least 50ms, not {given!r}")
    return micros


def check_policy(policy: str | To, words: tuple[str, ...], where: str) -> None:
    """Checks that a policy is one of the allowed words, or `to(stream)`."""
    if isinstance(policy, To):
        checked_name(policy.stream, "a stream")
    elif policy not in words:
        choices = " or ".join(f'"{word}"' for word in words)
        raise InvalidPipeline(f"{where} is {choices} or to(stream), not {policy!r}")
