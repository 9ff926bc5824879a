"""`headrace`: the command that joins the verbs.

An error is shown as one message on standard error; `--debug` shows its traceback as well.
"""

from __future__ import annotations

import errno
import os
from importlib import import_module
from typing import Any

import click

from headrace.cli import AS_A_PROCESS
from headrace.errors import HeadraceError

INTERRUPTED = 130

# The module of each verb; its command has the verb's name, with "_" for "-".
VERBS = {
    "new": "headrace.cli.first.new",
    "check": "headrace.cli.first.check",
    "kafka": "headrace.cli.first.kafka",
    "run": "headrace.cli.run",
    "deploy": "headrace.cli.deploy",
    "rollback": "headrace.cli.control",
    "ps": "headrace.cli.status",
    "status": "headrace.cli.status",
    "pause": "headrace.cli.control",
    "resume": "headrace.cli.control",
    "stop": "headrace.cli.control",
    "rescale": "headrace.cli.control",
    "savepoint": "headrace.cli.control",
    "restore": "headrace.cli.control",
    "replay": "headrace.cli.replay",
    "state": "headrace.cli.state.group",
    "store": "headrace.cli.store",
    "compact-output": "headrace.cli.compact_output",
    "ui": "headrace.cli.ui",
    "cluster": "headrace.cli.cluster.group",
    "demo": "headrace.cli.demo",
    "nexmark": "headrace.cli.workloads.nexmark",
    "linear-road": "headrace.cli.workloads.linear_road",
    "bench": "headrace.cli.bench.commands",
    "chaos": "headrace.cli.chaos",
}


class Verbs(click.Group):
    """A command group that shows errors as messages, and imports a verb when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the verbs."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb by its name."""
        if cmd_name not in VERBS:
            return None
        found: click.Command = getattr(import_module(VERBS[cmd_name]), cmd_name.replace("-", "_"))
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb."""
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(str(error)) from error
        except OSError as error:  # of a file that was named, or of standard output
            if ctx.params.get("debug") or error.errno == errno.EPIPE:
                raise
            if isinstance(error.filename, str | bytes):
                said = f"{os.fsdecode(error.filename)}: {error.strerror}"
            else:
                said = f"{type(error).__name__}: {error}; `headrace --debug` shows where"
            raise click.ClickException(said) from error
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
  headrace cluster start --executors 3
  headrace bench keyed-count --records 1000000 --keys 1000 --json out/keyed-count.json
  headrace nexmark q5 --events 1000000 --output out/q5
  headrace chaos --seeds 2000""",
)
@click.version_option(package_name="headrace", message="headrace %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Stateful stream processing in Python on Spark: every record exactly once."""
    if debug:
        from headrace.engine.spark.tracebacks import DEBUG

        os.environ[DEBUG] = "1"
        click.get_current_context().call_on_close(lambda: os.environ.pop(DEBUG, None))


def main() -> None:
    """The entry point of the `headrace` command."""
    cli(prog_name="headrace", obj=AS_A_PROCESS)


if __name__ == "__main__":
    main()
