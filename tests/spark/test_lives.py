"""Takeover, graceful stop, resumption and rescaling: one run, however many lives it has."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.reference.exchange import exchange as plain_exchange
from tests.spark.pipelines import exchange, make_trades, trades_in, write_trades
from tests.spark.programs import paced
from tests.spark.support import (
    FAILPOINTS,
    IN_PLACE,
    ROOT,
    bag,
    contents,
    local_follower,
    rows,
    run_local,
    state_of,
    with_declared_packages_only,
)

from headrace import Fenced, failpoints
from headrace.limits import LIMITS
from headrace.store.disk import DiskStore
from headrace.system import System

TRADES = make_trades(5, count=400, disorder=1_900_000)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outcome of a run that nobody disturbed."""
    where = tmp_path_factory.mktemp("calm")
    write_trades(TRADES, where / "in")
    run_local(exchange(trades_in(where / "in"), where / "out"), where / "checkpoint",
              slots=2, epoch_records=20)  # fmt: skip
    return where


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def check_outcome(where: Path) -> None:
    closed, payments, totals = plain_exchange(TRADES)
    assert bag(rows(where / "out" / "closed")) == bag(closed)
    assert bag(rows(where / "out" / "payments")) == bag(payments)
    paid = state_of(where / "checkpoint")["Pay"]
    assert {account: fields["paid"] for account, fields in paid.items()} == totals


MEETS_NOBODY = {"before-takeover", "after-takeover", "before-plan-write", "after-plan-write"}
"""Reached before the first epoch: there a driver that is overtaken has done nothing yet."""


@pytest.mark.parametrize("name", FAILPOINTS)
def test_a_driver_overtaken_at_any_point_stops_as_fenced_and_changes_nothing(
    tmp_path: Path, calm: Path, name: str
) -> None:
    write_trades(TRADES, tmp_path / "in")

    def follower() -> Any:
        pipeline = exchange(trades_in(tmp_path / "in"), tmp_path / "out")
        store = DiskStore(tmp_path / "checkpoint")
        if "merge" in name:
            # Deltas and results of merges as small as these would ride in commits.
            store.system = System(limits=msgspec.structs.replace(LIMITS, ride_bytes_max=1))
        return local_follower(pipeline, store, slots=2, epoch_records=20)

    arrivals = 0

    def overtake() -> None:
        nonlocal arrivals
        arrivals += 1
        if arrivals == (1 if name in MEETS_NOBODY or "collect" in name or "merge" in name else 5):
            failpoints.disarm()
            successor = follower().take_over()
            while type(successor.step()).__name__ == "Run":
                pass
            successor.close()

    failpoints.arm(name, overtake)
    first = follower()
    if name == "before-takeover":
        # It has not appended its generation yet: then it is the newer one, and finds all done.
        leader = first.take_over()
        assert type(leader.step()).__name__ == "Finish"
    else:
        with pytest.raises(Fenced, match=r"another driver .* has taken over this checkpoint"):
            leader = first.take_over()
            while type(leader.step()).__name__ == "Run":
                pass
            pytest.fail(f"it was never fenced, after {arrivals} arrivals at {name}")
    first.close()
    assert contents(tmp_path / "out") == contents(calm / "out")
    assert state_of(tmp_path / "checkpoint") == state_of(calm / "checkpoint")


@pytest.mark.spark
def test_a_second_driver_on_spark_takes_over_and_the_first_says_that_it_was_fenced(
    spark: SparkSession, tmp_path: Path, calm: Path
) -> None:
    write_trades(TRADES, tmp_path / "in")
    options: dict[str, Any] = {
        "checkpoint": str(tmp_path / "checkpoint"), "spark": spark, "slots": 2, "epoch_records": 20,
        **IN_PLACE,
    }  # fmt: skip
    first = exchange(trades_in(tmp_path / "in"), tmp_path / "out").start(until="end", **options)
    while first.status().epoch < 3:
        assert first.running
        time.sleep(0.02)
    second = exchange(trades_in(tmp_path / "in"), tmp_path / "out").run(**options)
    with pytest.raises(Fenced) as fenced:
        first.wait(60)
    assert "another driver (generation 2) has taken over this checkpoint" in str(fenced.value)
    assert second.epochs >= 5, "the first was still in the middle"
    assert contents(tmp_path / "out") == contents(calm / "out")
    assert state_of(tmp_path / "checkpoint") == state_of(calm / "checkpoint")


def test_a_stopped_run_resumes_with_other_slots_until_caught_up_and_then_to_the_end(
    tmp_path: Path,
) -> None:
    write_trades(TRADES, tmp_path / "in")
    for slots, epochs in [(2, 4), (5, 5), (1, 3), (3, 2)]:
        pipeline = exchange(trades_in(tmp_path / "in"), tmp_path / "out")
        follower = local_follower(pipeline, tmp_path / "checkpoint", slots=slots, epoch_records=20)
        driver = follower.take_over()
        for _ in range(epochs):
            driver.step()
        driver.close()
    again = exchange(trades_in(tmp_path / "in"), tmp_path / "out")
    summary = run_local(
        again, tmp_path / "checkpoint", slots=4, epoch_records=20, until="caught_up"
    )
    assert (summary.reason, summary.epochs > 0) == ("caught_up", True)
    before = contents(tmp_path / "out")
    last = exchange(trades_in(tmp_path / "in"), tmp_path / "out")
    summary = run_local(last, tmp_path / "checkpoint", slots=2)
    assert (summary.reason, summary.records) == ("end", 0)
    assert before.items() < contents(tmp_path / "out").items(), "what was out stays as it was"
    check_outcome(tmp_path)


@pytest.mark.spark
def test_sigterm_stops_headrace_run_after_its_epoch_and_a_later_run_goes_on_with_more_slots(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACED_OUTPUT", str(tmp_path / "out"))
    command = [
        sys.executable, "-m", "headrace.cli.main", "run", "tests.spark.programs.paced:pipeline",
        "--checkpoint", str(tmp_path / "checkpoint"), "--slots", "2", "--epoch-target", "300ms",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, env=with_declared_packages_only(tmp_path), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while len(list((tmp_path / "out").glob("epoch=*"))) < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert re.search("Stopping after the current epoch", err), (out, err)
    seen = {row["n"] for row in rows(tmp_path / "out")}
    assert seen == set(range(len(seen))), "nothing was lost and nothing is ahead"
    before = contents(tmp_path / "out")

    count = len(seen) + 1000
    summary = paced.pipeline(count).run(
        checkpoint=str(tmp_path / "checkpoint"), spark=spark, until="caught_up", slots=5
    )
    assert (summary.reason, summary.records) == ("caught_up", 1000)
    assert before.items() <= contents(tmp_path / "out").items()
    expected = [{"key": n % paced.KEYS, "n": n, "count": n // paced.KEYS + 1} for n in range(count)]
    assert bag(rows(tmp_path / "out")) == bag(expected)
    summary = paced.pipeline(count).run(checkpoint=str(tmp_path / "checkpoint"), spark=spark)
    assert (summary.reason, summary.records) == ("end", 0)
    assert len(rows(tmp_path / "out")) == count
