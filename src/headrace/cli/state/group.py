"""The group of verbs `headrace state`."""

from __future__ import annotations

import click

from headrace.cli.state.changing import checkpoint, compact, drop
from headrace.cli.state.copies import backup, export, restore, verify
from headrace.cli.state.importing import import_
from headrace.cli.state.looking import diff, get, list_, scan


@click.group(
    epilog="""\b
Examples:
  headrace state list state/orders
  headrace state get state/orders Orders o1
  headrace state get state/orders Trips '["berlin", 7]'
  headrace state scan state/orders Orders --limit 20
  headrace state scan state/orders --sql 'SELECT status, count(*) FROM Orders GROUP BY 1'
  headrace state diff state/orders 12 17
  headrace state export state/orders Orders out/orders
  headrace state import state/orders-2 shop.orders:pipeline --computation Orders --input out/orders
  headrace state backup state/orders s3://bucket/backups/orders
  headrace state restore s3://bucket/backups/orders state/orders-2
  headrace state verify state/orders
  headrace state compact state/orders
  headrace state drop state/orders Orders --key o1 --key o2
  headrace state drop state/orders Orders --all"""
)
def state() -> None:
    """Look at state, copy it, check it, change it: computations and the state of their keys."""


VERBS = (
    list_, get, scan, diff, export, import_, backup, restore, verify, checkpoint, compact, drop,
)  # fmt: skip
for verb in VERBS:
    state.add_command(verb)
