"""Options that several verbs share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.errors import InvalidPipeline
from headrace.model.values.time import duration
from headrace.plan.elastic.settings import EVEN, POLICIES, scale_of
from headrace.plan.options import COMMITTED, DURABLE, byte_size
from headrace.plan.options import checkpoint_every as checkpoint_every_
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import check_state

Command = TypeVar("Command", bound=Callable[..., Any])


def checked_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Checks that the text is a duration, and returns it."""
    try:
        if value is not None:
            duration(value, what="it")
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


def _size(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks that the text is a number of bytes, and returns it."""
    try:
        byte_size(value, "it")
    except InvalidPipeline as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


def _scale(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks the settings of the scaler, and returns their text."""
    try:
        scale_of(value)
    except (InvalidPipeline, ValueError) as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and what is no number, which are in no order with it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number that can be used here.", param, ctx)
        return number


class _Until(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2
    """Accepts `caught_up`, as Python spells it, in addition, and returns that."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = value.replace("_", "-") if isinstance(value, str) else value
        return str(super().convert(text, param, ctx)).replace("-", "_")


def _state(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks where state is to be kept, and returns it as it was given."""
    try:
        check_state(value)
    except InvalidPipeline as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


state = click.option(
    "--state",
    callback=_state,
    default=SEGMENTS,
    show_default=True,
    metavar="WHERE",
    help="Where fields and maps of keys are kept: segments, files, log, or the URL of a server. A "
    "checkpoint stays with the one that it began with.",
)
until = _Until(["end", "caught-up"])
master = click.option(
    "--master",
    metavar="URL",
    help="Spark master, such as spark://host:7077.  [default: all cores of this machine]",
)


def _conf(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """K=V, several times, as a mapping; the last one of a name counts, as for spark-submit."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            shown = name if equals else text  # a value may be a secret
            raise click.BadParameter(
                f"{shown!r} is no setting of Spark: write spark.NAME=VALUE", ctx, param
            )
        if name == "spark.master":
            raise click.BadParameter("give spark.master as --master", ctx, param)
        found[name] = value
    return found


def _listed(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between them, in one option or in several."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


conf = click.option(
    "--conf",
    multiple=True,
    callback=_conf,
    metavar="K=V",
    help="A setting of Spark, such as spark.executor.memory=2g. May be given several times. The "
    "command line of a process is visible to others: secrets belong into spark-defaults.conf.",
)
packages = click.option(
    "--packages",
    multiple=True,
    callback=_listed,
    metavar="G:A:V",
    help="Java packages by their Maven coordinates, with commas between them.",
)
py_files = click.option(
    "--py-files",
    multiple=True,
    callback=_listed,
    metavar="FILES",
    help="Modules (.py) and packages (.zip) that the pipeline imports, with commas between them. "
    "Spark brings them to its workers; the pipeline itself may lie in one.",
)


def spark(command: Command) -> Command:
    """The options of a verb that starts Spark for a pipeline of the user's."""
    for option in (py_files, packages, conf, master):
        command = option(command)
    return command


slots = click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Units of parallel work per level.  [default: as many as Spark has cores]",
)
balance = click.option(
    "--balance",
    type=click.Choice(POLICIES),
    default=EVEN,
    show_default=True,
    help="How load moves between slots: from any slot to any other, between neighbours on the "
    "ring, or not at all.",
)
scale = click.option(
    "--scale",
    callback=_scale,
    default="off",
    show_default=True,
    metavar="on|off|SETTINGS",
    help="Add and remove slots as the load needs; settings have the form above=0.8,cooldown=30s "
    "(above, below, aim: parts of the time; reports, every, slots_min: numbers).",
)
max_slots = click.option(
    "--max-slots",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    help="How many slots --scale may give a computation.  [default: as many as Spark has cores]",
)


def _every(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks that the text is a number of epochs or a time, and returns it."""
    try:
        checkpoint_every_(value)
    except (InvalidPipeline, ValueError) as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


checkpoint_every = click.option(
    "--checkpoint-every",
    callback=_every,
    default="1",
    show_default=True,
    metavar="N|TIME",
    help="Make state durable every N epochs, or after a time such as 10s, and not with each epoch. "
    "What is lost meanwhile is made again from the input.",
)
deliver = click.option(
    "--deliver",
    type=click.Choice([COMMITTED, DURABLE]),
    default=COMMITTED,
    show_default=True,
    help="When sinks get an epoch: when it is committed, or when its state is durable.",
)
accept_repairs = click.option(
    "--accept-repairs",
    is_flag=True,
    help="Lost state that cannot be made again as it was may be replaced by what the code makes "
    "now; rows that were delivered stay.",
)
replicas = click.option(
    "--replicas",
    type=click.IntRange(min=0, max=100),
    default=0,
    show_default=True,
    metavar="N",
    help="On a cluster: other executors that keep a copy of each slot's state.",
)
local_cache = click.option(
    "--local-cache",
    callback=_size,
    default="1GB",
    show_default=True,
    metavar="SIZE",
    help="How much an executor may copy to its own disk from a checkpoint that is a URL.",
)
state_cache = click.option(
    "--state-cache",
    callback=_size,
    default="256MB",
    show_default=True,
    metavar="SIZE",
    help="How much memory the decoded objects of keys may take in each Python worker.",
)
recovery = click.option(
    "--recovery",
    type=click.Choice(["lazy", "eager"]),
    default="lazy",
    show_default=True,
    help="When slots come to a process: read keys as they come, or load those that are needed "
    "soon.",
)
epoch_timeout = click.option(
    "--epoch-timeout",
    callback=checked_duration,
    metavar="TIME",
    help="On a cluster: when an epoch counts as hung.  [default: 60s, or 20 times the slowest]",
)
straggler_after = click.option(
    "--straggler-after",
    callback=checked_duration,
    metavar="TIME",
    help="How much longer than usual an epoch may take before slow slots get a limit.  "
    "[default: twice --epoch-target]",
)
overload = click.option(
    "--overload",
    type=click.Choice(["carry", "shed"]),
    default="carry",
    show_default=True,
    help="What a slot with a limit does with the rest of its input: keep it for the next epoch, "
    "or drop the oldest.",
)

lease = click.option(
    "--lease",
    callback=checked_duration,
    default="3s",
    show_default=True,
    metavar="TIME",
    help="A driver without a sign of life for this long counts as dead.",
)
give_up_after = click.option(
    "--give-up-after",
    callback=checked_duration,
    metavar="TIME",
    help="How long to wait for a checkpoint or a sink that is unavailable.  [default: for ever]",
)


epoch_records = click.option(
    "--epoch-records",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many records an epoch reads, instead of a size that follows the speed.",
)


def epoch_target(default: str) -> Callable[[Command], Command]:
    """The option for how long an epoch should take."""
    return click.option(
        "--epoch-target",
        callback=checked_duration,
        default=default,
        show_default=True,
        metavar="TIME",
        help="How long an epoch should take; its size is adjusted.",
    )
