"""What the page asks for, as data: pipelines, one pipeline, the state of a key, a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from headrace.engine.primitives.json_form import json_line, typed_key
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import HeadraceError, InvalidPipeline
from headrace.observe.ui.watcher import Watcher
from headrace.plan.control import PAUSE, RESCALE, RESUME

KEYS_SHOWN = 20
ASK_TIMEOUT_S = 30.0
VALUE_MAX = 5_000
"""How many characters of one value are shown."""
VERBS = (PAUSE, RESUME, RESCALE)
"""What the page may ask; all else is for the command."""


class Answers:
    """Answers for some checkpoints."""

    def __init__(self, checkpoints: Sequence[str], *, read_only: bool = False) -> None:
        self.watchers = [Watcher(number, where) for number, where in enumerate(checkpoints)]
        self.read_only = read_only

    def pipelines(self) -> dict[str, Any]:
        """All pipelines in short."""
        found = []
        for watcher in self.watchers:
            sight = watcher.look()
            seen, status = sight.overview, sight.status
            rates = status.rates if status is not None else {}
            sources = [p.name for p in status.graph if p.kind == "source"] if status else []
            found.append(
                {
                    "number": sight.number,
                    "location": sight.location,
                    "error": sight.error,
                    "pipeline": seen.pipeline if seen else "",
                    "state": seen.state if seen else "unreadable",
                    "epoch": seen.epoch if seen else 0,
                    "records": seen.records if seen else 0,
                    "dead": seen.dead if seen else 0,
                    "rate": sum(rates.get(name, 0.0) for name in sources),
                    "state_bytes": seen.state_bytes if seen else 0,
                    "wall": seen.wall if seen else 0,
                    "outage": bool(status and status.outage),
                }
            )
        return {"pipelines": found, "read_only": self.read_only}

    def pipeline(self, number: int) -> dict[str, Any]:
        """All that is known of one pipeline."""
        sight = self._watcher(number).look()
        found: dict[str, Any] = plain(sight)
        if sight.overview is not None:
            for shown, decision in zip(
                found["overview"]["decisions"], sight.overview.decisions, strict=True
            ):
                shown["text"] = decision.text
        found["read_only"] = self.read_only
        return found

    def keys(self, number: int, computation: str) -> dict[str, Any]:
        """The first keys of a computation, in the order of hashes."""
        checkpoint = Checkpoint(self._watcher(number).location)
        some = [
            {"key": json_line(key), "state": shown(state)}
            for key, state in islice(checkpoint.scan(computation), KEYS_SHOWN)
        ]
        return {"epoch": checkpoint.epoch, "keys": some, "more": len(some) == KEYS_SHOWN}

    def state(self, number: int, computation: str, key: str) -> dict[str, Any]:
        """The state of a key; the key is JSON, or a bare word."""
        checkpoint = Checkpoint(self._watcher(number).location)
        found = checkpoint.lookup(computation, typed_key(key))
        return {
            "epoch": found.epoch,
            "found": found.state is not None,
            "key": json_line(typed_key(key)),
            "state": [] if found.state is None else shown(found.state),
        }

    def ask(self, number: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Puts a request, and waits for what the leader decides."""
        if self.read_only:
            raise InvalidPipeline("this page was started with --read-only")
        verb, arguments = request.get("verb"), {}
        if verb not in VERBS:
            raise InvalidPipeline(f"the page asks for {', '.join(VERBS)}, not {verb!r:.40}")
        if verb == RESCALE:
            computation, slots = request.get("computation"), request.get("slots")
            if not isinstance(computation, str) or type(slots) is not int:
                raise InvalidPipeline("rescale needs a computation and a number of slots")
            if not 1 <= slots <= 10_000:
                raise InvalidPipeline(f"slots: a number from 1 to 10,000, not {slots}")
            arguments = {"computation": computation, "slots": slots}
        remote = self._watcher(number).remote
        done = remote.ask(verb, arguments, timeout_s=ASK_TIMEOUT_S, done=False)
        return {"verdict": done.verdict, "message": done.message}

    def _watcher(self, number: int) -> Watcher:
        if not 0 <= number < len(self.watchers):
            raise NoSuchPipeline(f"there is no pipeline {number}")
        return self.watchers[number]


class NoSuchPipeline(HeadraceError):
    """The page asks for a pipeline that it does not have."""


def shown(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(field, value) of a state, as text: a number in a browser has 53 bits."""
    texts = [(name, repr(value)) for name, value in state.items()]
    return [(n, t if len(t) <= VALUE_MAX else f"{t[:VALUE_MAX]}...") for n, t in texts]


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON does not know is shown by its `repr`."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr, builtin_types=(bytes,))
