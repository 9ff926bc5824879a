"""`headrace`: the command that joins the verbs.

An error is shown as one message on standard error; `--debug` shows its traceback as well.
"""

from __future__ import annotations

import os
from typing import Any

import click

from headrace.cli.bench.commands import bench
from headrace.cli.chaos import chaos
from headrace.cli.compact_output import compact_output
from headrace.cli.control import pause, rescale, restore, resume, rollback, savepoint, stop
from headrace.cli.demo import demo
from headrace.cli.deploy import deploy
from headrace.cli.first.check import check
from headrace.cli.first.new import new
from headrace.cli.replay import AS_A_PROCESS, replay
from headrace.cli.run import run
from headrace.cli.state.group import state
from headrace.cli.status import ps, status
from headrace.cli.store import store
from headrace.cli.ui import ui
from headrace.cli.workloads.linear_road import linear_road
from headrace.cli.workloads.nexmark import nexmark
from headrace.engine.spark.tracebacks import DEBUG
from headrace.errors import HeadraceError

INTERRUPTED = 130


class Verbs(click.Group):
    """A command group that shows errors as messages."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  headrace demo zeitgeist
  headrace new page-hits
  headrace check shop.orders:pipeline
  headrace run shop.orders:pipeline --checkpoint state/orders
  headrace run shop.orders:pipeline --checkpoint state/orders --until caught-up
  headrace ps state/orders state/clicks
  headrace status state/orders
  headrace ui state/orders
  headrace rescale state/orders Orders 8
  headrace deploy state/orders shop.orders:pipeline
  headrace state get state/orders Orders o1
  headrace replay shop.orders:pipeline --checkpoint state/orders --epoch 17
  headrace store check s3://bucket/orders
  headrace bench keyed-count --records 1000000 --keys 1000 --json out/keyed-count.json
  headrace nexmark q5 --events 1000000 --output out/q5
  headrace chaos --seeds 2000""",
)
@click.version_option(package_name="headrace", message="headrace %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Stateful stream processing in Python on Spark: every record exactly once."""
    if debug:
        os.environ[DEBUG] = "1"
        click.get_current_context().call_on_close(lambda: os.environ.pop(DEBUG, None))


VERBS = (
    *(new, check, run, deploy, rollback, ps, status, pause, resume, stop, rescale, savepoint),
    *(restore, replay, state, store, compact_output, ui, demo, nexmark, linear_road, bench, chaos),
)
for verb in VERBS:
    cli.add_command(verb)


def main() -> None:
    """The entry point of the `headrace` command."""
    cli(prog_name="headrace", obj=AS_A_PROCESS)


if __name__ == "__main__":
    main()
