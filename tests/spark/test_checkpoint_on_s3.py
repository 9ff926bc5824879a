"""A checkpoint in an object store: results as on a disk, also for a driver that is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.reference.exchange import exchange as plain_exchange
from tests.servers.stores import ALWAYS, server_of
from tests.spark.pipelines import make_trades, write_trades
from tests.spark.support import bag, contents, rows, state_of
from tests.spark.test_kills import follow, start, undisturbed

from headrace import Checkpoint
from headrace.cli.main import cli


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_driver_with_its_checkpoint_on_s3_is_killed_and_ends_as_on_a_disk(
    tmp_path: Path,
) -> None:
    url = server_of(ALWAYS).new_url()
    trades = make_trades(5, count=600, disorder=1_900_000)
    killed = tmp_path / "killed"
    write_trades(trades, killed / "in")
    process = start("kill_me", killed, 25, "--checkpoint", url)
    follow(process, 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process = start("kill_me", killed, 25, "--checkpoint", url)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count("epoch ") >= 3, "the kill hit a running pipeline"
    calm = undisturbed(tmp_path / "calm", trades, slots=2, epoch_records=25)
    closed, payments, _ = plain_exchange(trades)
    assert bag(rows(killed / "out" / "closed")) == bag(closed)
    assert bag(rows(killed / "out" / "payments")) == bag(payments)
    assert contents(killed / "out") == contents(calm / "out"), "byte for byte, epoch by epoch"
    assert state_of(url) == state_of(calm / "checkpoint")
    shown = CliRunner().invoke(cli, ["state", "list", url])
    assert shown.exit_code == 0 and f"epoch {Checkpoint(url).epoch}" in shown.output


@pytest.mark.spark
def test_workers_use_a_store_that_the_driver_has_used_before_them(tmp_path: Path) -> None:
    url = server_of(ALWAYS).new_url()
    process = start("store_in_workers", tmp_path, url)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out.split()) == (0, ["100", "100"]), err
