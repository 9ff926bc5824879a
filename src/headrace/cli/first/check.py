"""`headrace check module:name`: a pipeline on a few real records, without Spark, in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.targets import load_pipeline
from headrace.engine.primitives.json_form import json_line
from headrace.model.values.time import show_instant
from headrace.plan.progress import counted

if TYPE_CHECKING:
    from headrace.testing.sampling.check import PipelineCheck, SampledStream

WIDTH = 140
"""How many characters of one value are shown."""


@click.command(
    epilog="""\b
Examples:
  headrace check word_count:p
  headrace check shop.orders:pipeline --records 1000
  headrace check shop.orders:pipeline --json"""
)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--records",
    type=click.IntRange(min=1, max=1_000_000),
    default=100,
    show_default=True,
    metavar="N",
    help="About how many records of each source are read.",
)
@click.option(
    "--calls",
    is_flag=True,
    help="Let computations call the outside by ctx.http and ctx.call.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def check(target: str, records: int, calls: bool, as_json: bool) -> None:
    """Run a pipeline on a few real records, without Spark and without a trace.

    It reads the first records of each source, runs them in this process with all state in memory,
    and shows what comes out of every stream. Sinks get nothing, and no checkpoint is made. At the
    end the input counts as ended, so that windows close and timers fire. The exit status is 1 if
    the pipeline fails.
    """
    from headrace.testing.sampling.check import check_pipeline

    pipeline = load_pipeline(target)
    pipeline.validate()
    found = check_pipeline(pipeline, records, calls=calls)
    if as_json:
        click.echo(json_line(found))
        return
    for line in lines_of(found):
        click.echo(line)


def lines_of(found: PipelineCheck) -> list[str]:
    """What a check has found, as text."""
    read = sum(one.records for one in found.inputs.values())
    lines = [
        f"{found.pipeline}: {counted(read, 'record')} in {counted(found.epochs, 'epoch')}, "
        f"{found.seconds:.1f} s, without Spark; nothing was written.",
        "",
        "sources",
    ]
    for stream, one in found.inputs.items():
        of = f" of {one.splits_known:,}" if one.splits_known > one.splits else ""
        lines.append(
            f"  {stream}: {counted(one.records, 'record')}, {one.splits:,}{of} "
            f"{'splits' if one.splits_known != 1 else 'split'} of {one.source}"
        )
        for part, records in one.parts:
            asked = "" if records else ": is there input where it looks?"
            lines.append(f"    {counted(records, 'record')} of {part}{asked}")
        if not one.records and not one.parts:
            lines.append("    nothing was read: is there input where the source looks?")
    if found.computations:
        lines += ["", "computations"]
    for name, each in found.computations.items():
        said = [] if each.records is None else [counted(each.records, "record")]
        said += [] if each.keys is None else [counted(each.keys, "key") + " in state at the end"]
        said.append(f"watermark {show_instant(each.watermark)}")
        lines.append(f"  {name}: {', '.join(said)}")
        lines += [f"    {key!r}: {_cut(state)}" for key, state in each.samples]
    lines += ["", "streams"]
    for stream, out in found.streams.items():
        lines += _stream_lines(stream, out)
    lines += ["", f"{found.late:,} late, {counted(found.dead, 'dead letter')}"]
    lines += [f"  {name}: {count:,}" for name, count in sorted(found.counts.items())]
    lines += [f"Note: {note}" for note in found.notes]
    return lines


def _stream_lines(stream: str, out: SampledStream) -> list[str]:
    ended = f" ({out.at_end:,} when the input ended)" if out.at_end else ""
    sinks = f" -> {', '.join(out.sinks)}" if out.sinks else ""
    kind = ", dead letters" if out.dead_letters else ""
    lines = [f"  {stream}: {counted(out.rows, 'row')}{ended}{kind}{sinks}"]
    lines += [f"    {_cut(_letter(value) if out.dead_letters else value)}" for value in out.samples]
    if out.rows > len(out.samples):
        lines.append("    ...")
    return lines


def _letter(value: Any) -> Any:
    """A dead letter without its traceback, the error first."""
    if not isinstance(value, dict):
        return value
    shown = {name: value[name] for name in ("error", "stream", "key", "value") if name in value}
    return shown or value


def _cut(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
