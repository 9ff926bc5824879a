"""The services that reach the outside, by their names on `ctx`.

A new service is one new file beside this one (a class made with the context that asks, which
turns calls into questions) and one line in `SERVICES`. What users see of it is declared as an
`OutsideService` in `model/context.Services`; from there the engine knows which computations use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.causal.functions import FunctionService
from headrace.causal.http import HttpService
from headrace.causal.questions import Asker
from headrace.errors import InvalidPipeline

SERVICES: dict[str, Callable[[Asker], Any]] = {
    "call": FunctionService,
    "http": HttpService,
}


class ServiceContext(Asker):
    """A context whose hooks may use every service of the catalog."""

    def outside(self, name: str) -> Any:
        """The service of this name; it asks through this context."""
        return SERVICES[name](self)


def service_not_prepared(computation: str, what: str) -> InvalidPipeline:
    """The error of a computation that uses a service without having said so."""
    return InvalidPipeline(
        f"{computation!r} uses ctx.{what}, but its class does not mention it, so nothing was made "
        "ready for it: p.compute(..., services=True)"
    )
