"""`headrace store check URL`: whether a store can hold a checkpoint, and how fast it is."""

from __future__ import annotations

import click

from headrace.engine.primitives.json_form import json_line


@click.group(
    epilog="""\b
Examples:
  headrace store check s3://bucket/checkpoints
  headrace store check 's3://bucket/x?endpoint=http://127.0.0.1:9000&allow_http=true'
  headrace store check hdfs://namenode:8020/checkpoints --json
  headrace store check /shared/checkpoints"""
)
def store() -> None:
    """Look at the place where a checkpoint would lie: a bucket, HDFS, or a directory."""


@store.command(
    epilog="""\b
Examples:
  headrace store check s3://bucket/checkpoints
  headrace store check /shared/checkpoints --json"""
)
@click.argument("location", metavar="URL")
@click.option(
    "--requests",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many puts, gets and lists to measure.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def check(ctx: click.Context, location: str, requests: int, as_json: bool) -> None:
    """Ask a store whether it can hold a checkpoint, and measure it.

    URL is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://host:port/path, or
    a path. Sixteen writers create one name at once, and exactly one may succeed. Only names with
    a random part are written, and all are deleted. The exit status is 1 if the store cannot hold
    a checkpoint.
    """
    from headrace.store.asking import check as check_store
    from headrace.store.location import checkpoint_store

    opened = checkpoint_store(location)
    found = check_store(opened, requests)
    if as_json:
        click.echo(json_line(found))
    elif found.can_hold_a_checkpoint:
        click.echo(
            f"{opened.where()} can hold a checkpoint: of 16 writers of one name, one succeeds.\n"
            f"Half of {requests} requests took at most: put {found.put_ms_p50:,.1f} ms, "
            f"get {found.get_ms_p50:,.1f} ms, list {found.list_ms_p50:,.1f} ms."
        )
    else:
        click.echo(f"Error: {found.reason}", err=True)
    if not found.can_hold_a_checkpoint:
        ctx.exit(1)
