"""`headrace bench kafka`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.bench.options import UNLIKE, json_file_option, number, say, tell, work_dir_option


@click.command(
    "kafka",
    epilog="""\b
Examples:
  headrace bench kafka --json out/kafka.json
  headrace bench kafka --records 50000 --rounds 3
  headrace bench kafka --connector 4.2.0""",
)
@number("--records", 200_000, "Records of the backlog.")
@number("--keys", 1_000, "Distinct keys.")
@number("--epochs", 6, "Measured epochs of the backlog.")
@number("--warmup", 4, "Epochs before them.", "warmup_epochs")
@number("--rounds", 1, "How often the systems take turns.")
@click.option(
    "--connector",
    metavar="VERSION",
    default="",
    help="The version of Spark's own connector to Kafka, the peer.  [default: that of this Spark]",
)
@work_dir_option
@json_file_option
def kafka(
    rounds: int, connector: str, work_dir: Path | None, json_file: Path | None, **shape: int
) -> None:
    """Count from topic to topic, beside files and beside Structured Streaming."""
    from headrace.bench.kafka.run import KafkaShape, format_kafka, run_kafka

    document = run_kafka(
        KafkaShape(**shape), rounds=rounds, connector=connector, work_dir=work_dir, say=say
    )
    tell(document, format_kafka(document), json_file, wrong=UNLIKE)
