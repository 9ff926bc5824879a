"""`headrace ui CHECKPOINT...`: a web page over pipelines, wherever they run."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  headrace ui state/orders
  headrace ui state/orders s3://bucket/clicks --port 9096
  headrace ui s3://bucket/orders --read-only"""
)
@click.argument("checkpoints", nargs=-1, required=True, metavar="DIR|URL...")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=9096,
    show_default=True,
    metavar="PORT",
    help="Where the page is shown, on 127.0.0.1; 0: any free port.",
)
@click.option("--read-only", is_flag=True, help="No pause, resume or rescale from the page.")
def ui(checkpoints: tuple[str, ...], port: int, read_only: bool) -> None:
    """Show pipelines on a web page, on this machine only, until Ctrl-C.

    It shows the graph with rates and watermarks, slots by load, epochs with their phases, the state
    of keys, dead letters, outages and decisions. All of it is read from the checkpoints, so the
    pipelines may run on other machines.
    """
    from headrace.engine.commands import Remote
    from headrace.observe.ui.server import UiServer

    for location in checkpoints:
        Remote(location)  # a location without a checkpoint is refused at once
    server = UiServer(checkpoints, port, read_only=read_only)
    click.echo(f"{server.url} (Ctrl-C ends the page; pipelines are not touched)")
    try:
        server.serve()
    except KeyboardInterrupt:
        click.echo("")
    finally:
        server.close()
