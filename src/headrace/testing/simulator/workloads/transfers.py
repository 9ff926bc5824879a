"""Transfers of 1 between ten accounts, out of order: the balances sum to 0 in every output."""

from __future__ import annotations

from random import Random
from typing import Any

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.workloads.records import LATENESS_US, Attached, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

ACCOUNTS = 10


class Transfer(Computation):
    """Splits a transfer into two legs."""

    sent: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.sent += 1
        ctx.produce({"account": record.value["from"], "amount": -1})
        ctx.produce({"account": record.value["to"], "amount": 1})


class Account(Computation):
    """Keeps the balance of an account."""

    balance: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.balance += record.value["amount"]
        ctx.produce({"account": ctx.key, "balance": self.balance})


class Transfers(Attached):
    """The workload."""

    name = "transfers"

    def __init__(self, random: Random) -> None:
        def transfer(i: int, at: int) -> dict[str, int]:
            one, other = random.sample(range(ACCOUNTS), 2)
            return {"from": one, "to": other, "at": at}

        self.records = {"transfers": stamped(random, random.randint(8, 28), transfer)}
        self._balances: dict[int, int] = {}

    def pipeline(self) -> PipelineBuilder:
        """Two levels."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("transfers", SimulatedSource(timing, self.records["transfers"]))
        p.compute(Transfer, inputs={"transfers": "from"}, outputs="legs")
        p.compute(Account, inputs={"legs": "account"}, outputs="balances")
        p.stream("balances").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """In the output up to any epoch, no money was created or lost."""
        for value, _ in rows:
            self._balances[value["account"]] = value["balance"]
        total = sum(self._balances.values())
        if total and not self.waits(epoch):
            raise Violation(f"after epoch {epoch} the balances sum to {total}: {self._balances}")

    def check(self, outcome: SimulationOutcome) -> None:
        """The final balances are those of the reference."""
        expected = dict.fromkeys(range(ACCOUNTS), 0)
        sent = dict.fromkeys(range(ACCOUNTS), 0)
        for record in (r for split in self.records["transfers"].values() for r in split):
            expected[record["from"]] -= 1
            expected[record["to"]] += 1
            sent[record["from"]] += 1
        accounts = dict(outcome.checkpoint.scan("Account"))
        transfers = dict(outcome.checkpoint.scan("Transfer"))
        for account in range(ACCOUNTS):
            found = (
                self._balances.get(account, 0),
                accounts.get(account, {}).get("balance", 0),
                transfers.get(account, {}).get("sent", 0),
            )
            right = (expected[account], expected[account], sent[account])
            if found != right:
                raise Violation(
                    f"account {account}: (published, kept, sent) is {found}, should be {right}"
                )
