"""What an epoch asks of an object store: no listing, no delete, each immutable file read once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.servers.stores import ALWAYS, server_of
from tests.spark.pipelines import inside
from tests.spark.programs.count_requests import EPOCHS, SLOTS
from tests.spark.test_kills import start

from headrace import read_output
from headrace.plan.progress import EpochProgress
from headrace.store.counts import LEASE, MERGES, PATH, UPKEEP, RequestCounts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[EpochProgress]:
    """The progress after each epoch."""
    url = server_of(ALWAYS).new_url()
    process = start("count_requests", tmp_path_factory.mktemp("spark"), url)
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert len(read_output(inside(url, "out")).table()) == 20 * EPOCHS
    return [msgspec.json.decode(line, type=EpochProgress) for line in out.splitlines()]


def between(told: list[EpochProgress], purpose: str) -> list[RequestCounts]:
    """The requests of each epoch under a purpose, without the first epochs and the last."""
    sums = [each.store.requests.get(purpose, RequestCounts()) for each in told]
    return [after - before for before, after in pairwise(sums[3:-1])]


def test_no_epoch_waits_for_a_listing_or_a_delete(told: list[EpochProgress]) -> None:
    assert len(told) >= EPOCHS
    for counts in between(told, PATH):
        assert (counts.lists, counts.deletes) == (0, 0)


def test_an_epoch_puts_its_large_files_a_manifest_per_sink_and_its_commit(
    told: list[EpochProgress],
) -> None:
    found = between(told, PATH)
    assert all(2 <= counts.puts <= 2 * SLOTS + 2 for counts in found), found
    # After the commit a look at the marker of its directory; and merged state, once per executor.
    assert sum(counts.gets for counts in found) <= 2.5 * len(found), found


def test_leases_merges_and_upkeep_are_counted_apart(told: list[EpochProgress]) -> None:
    requests = told[-1].store.requests
    assert requests[LEASE].puts >= 1 and requests[UPKEEP].requests >= 1
    assert requests.get(MERGES, RequestCounts()).lists == 0


def test_workers_find_state_on_their_own_disk(told: list[EpochProgress]) -> None:
    use = told[-1].store
    assert use.near_reads > 0 and use.hit_rate > 0.5, use


def test_workers_without_credentials_are_refused_in_a_sentence_before_any_epoch(
    tmp_path: Path,
) -> None:
    url = server_of(ALWAYS).new_url()
    process = start("count_requests", tmp_path, url, "--credentials-come-late")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    (line,) = out.splitlines()
    assert line.startswith("refused: Spark's workers run ")
    assert "cannot read the checkpoint s3://" in line and "no credentials were found" in line
    assert "test" not in line.partition("no credentials")[2], "none of them is shown"
