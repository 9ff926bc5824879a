"""The services that call the outside world, by their names on `ctx`.

A new service needs one new file beside this one and one line in `SERVICES`. The file has a class
that is created with the context of the hook, and that turns calls into questions. The public
interface is declared as an `OutsideService` in `model/context.Services`; the declaration tells the
engine which computations use the service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.causal.functions import FunctionService, ManyFunctionService
from headrace.causal.http import HttpService
from headrace.causal.questions import Asker
from headrace.errors import InvalidPipeline

SERVICES: dict[str, Callable[[Asker], Any]] = {
    "call": FunctionService,
    "call_many": ManyFunctionService,
    "http": HttpService,
}


class ServiceContext(Asker):
    """A context whose hooks may use every service of the catalog."""

    def outside(self, name: str) -> Any:
        """The service of this name. Its calls go through this context."""
        return SERVICES[name](self)


def service_not_prepared(computation: str, what: str) -> InvalidPipeline:
    """The error for a computation that uses a service but does not mention it in its code."""
    return InvalidPipeline(
        f"{computation!r} uses ctx.{what}, but its class does not mention it, so it was not "
        "prepared for it: p.compute(..., services=True)"
    )
