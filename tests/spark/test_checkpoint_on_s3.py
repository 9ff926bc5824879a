"""A checkpoint in an object store: results as on a disk, also for a driver that is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.reference.exchange import exchange as plain_exchange
from tests.servers.stores import ALWAYS, server_of
from tests.spark.pipelines import inside, make_trades, write_trades
from tests.spark.support import bag, contents, rows, state_of
from tests.spark.test_kills import follow, start, undisturbed

from headrace import Checkpoint, read_output
from headrace.cli.main import cli
from headrace.store.location import open_store


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


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_pipeline_that_shares_nothing_but_a_store_is_killed_and_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    server = server_of(ALWAYS)
    files, checkpoint = server.new_url(), server.new_url()
    trades = make_trades(8, count=600, disorder=1_900_000)
    for name, given in trades.items():
        lines = "".join(json.dumps(row) + "\n" for row in given)
        open_store(files).write(f"in/{name}", lines.encode())
    program = ("kill_me", tmp_path, 25, "--checkpoint", checkpoint, "--files", files)
    process = start(*program)
    follow(process, 4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    early = read_output(inside(files, "out/closed"))
    process = start(*program)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    closed, payments, _ = plain_exchange(trades)
    late = read_output(inside(files, "out/closed"), after=early.cursor)
    found = [row for output in (early, late) for row in output.table().to_pylist()]
    assert bag(found) == bag(closed)
    assert bag(read_output(inside(files, "out/payments")).table().to_pylist()) == bag(payments)
    assert [epoch.number for epoch in (*early, *late)] == list(range(1, len(early) + len(late) + 1))
    assert {path.name for path in tmp_path.iterdir()} == {"spark"}
