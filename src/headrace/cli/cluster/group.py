"""`headrace cluster start|status|stop`: a standalone cluster on this machine, for trying out."""

from __future__ import annotations

import re
from pathlib import Path

import click

from headrace.cli.cluster.local_cluster import (
    ClusterRecord,
    default_directory,
    executors_in,
    members,
    record_in,
    start,
    stop,
    workers_in,
)
from headrace.engine.spark.java import check_java
from headrace.engine.spark.session import say_progress
from headrace.errors import HeadraceError

DEFAULT_MEMORY = "1g"


def _memory(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[mg]", value):
        raise click.BadParameter(f"{value!r} is not a size such as 512m or 1g", ctx, param)
    return value


_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where its logs and files lie; each directory has a cluster of its own.  [default: a "
    "directory of yours among the temporary files]",
)


@click.group(
    epilog="""\b
Examples:
  headrace cluster start --executors 3
  headrace cluster status
  headrace cluster stop"""
)
def cluster() -> None:
    """A standalone Spark cluster on this machine, for trying out.

    A master and one worker per executor, as processes of their own that can be killed. They listen
    on 127.0.0.1 only, and ask for no password: whoever can log in here can use them.
    """


@cluster.command(
    "start",
    epilog="""\b
Examples:
  headrace cluster start --executors 3
  headrace cluster start --executors 2 --cores 2 --memory 2g --dir out/cluster""",
)
@click.option(
    "--executors",
    type=click.IntRange(1, 64),
    default=3,
    show_default=True,
    metavar="N",
    help="How many executors a pipeline gets.",
)
@click.option(
    "--cores",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="How many cores each of them has.",
)
@click.option(
    "--memory",
    callback=_memory,
    default=DEFAULT_MEMORY,
    show_default=True,
    metavar="SIZE",
    help="How much memory each of them has.",
)
@_directory
def start_command(executors: int, cores: int, memory: str, directory: Path | None) -> None:
    """Start a cluster, and say how a pipeline runs on it.

    It runs until `headrace cluster stop`, also when the terminal is closed.
    """
    check_java()
    place = (directory or default_directory()).absolute()
    say_progress(f"Starting a master and {executors} workers; this takes some seconds.")
    record = start(place, executors, cores, memory)
    click.echo("\n".join(started_text(record, place, directory is not None)))


def started_text(record: ClusterRecord, place: Path, chosen: bool) -> list[str]:
    """What a person needs to know next."""
    conf = (
        "" if record.memory == DEFAULT_MEMORY else f" --conf spark.executor.memory={record.memory}"
    )
    where = f" --dir {place}" if chosen else ""
    many = "1 executor" if record.executors == 1 else f"{record.executors} executors"
    cores = "1 core" if record.cores == 1 else f"{record.cores} cores"
    return [
        f"A Spark cluster runs on 127.0.0.1: {many} of {cores} and {record.memory}.",
        f"  master  {record.url}",
        f"  page    {record.page}",
        f"  logs    {place}",
        "Run a pipeline on it:",
        f"  headrace run MODULE:NAME --checkpoint DIR --master {record.url}{conf}",
        "Stop it:",
        f"  headrace cluster stop{where}",
    ]


@cluster.command(
    epilog="""\b
Examples:
  headrace cluster status
  headrace cluster status --dir out/cluster"""
)
@_directory
def status(directory: Path | None) -> None:
    """Say whether a cluster runs; the exit status is 0 if all of it does, and 1 otherwise."""
    place = (directory or default_directory()).absolute()
    record = _required(place)
    found = members(record)
    workers, executors = workers_in(found), executors_in(found)
    of_all = f"{workers} of {record.executors} workers, {executors} executors in use"
    click.echo(f"{record.url}: {of_all}")
    if workers < record.executors or len(found) <= workers:
        raise HeadraceError(
            f"not all of the cluster runs; {place} has its logs. `headrace cluster stop`, then "
            "start it again"
        )


@cluster.command(
    "stop",
    epilog="""\b
Examples:
  headrace cluster stop
  headrace cluster stop --dir out/cluster""",
)
@_directory
def stop_command(directory: Path | None) -> None:
    """End the cluster and everything that runs on it, and delete its files.

    Drivers are processes of their own, and lose their executors: a pipeline that still runs fails,
    and goes on from its checkpoint when it is started again elsewhere.
    """
    place = (directory or default_directory()).absolute()
    record = _required(place)
    ended = stop(place, record)
    click.echo(f"{record.url} has ended ({ended} processes), and {place} is deleted.")


def _required(place: Path) -> ClusterRecord:
    record = record_in(place)
    if record is None:
        raise HeadraceError(f"no cluster was started in {place}: `headrace cluster start` does")
    return record
