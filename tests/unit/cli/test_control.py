"""The commands to a pipeline: what they print, what they refuse, and how they end."""

import json
import time

import pytest
from click.testing import CliRunner
from tests.unit.engine.support import counting, follower_of

from headrace.cli.main import cli
from headrace.engine.job import Job
from headrace.sources import generate
from headrace.store.disk import DiskStore


def headrace(*words):
    result = CliRunner().invoke(cli, [str(word) for word in words])
    lines = result.output.splitlines(keepends=True)  # a slow machine makes it say that it waits
    return result.exit_code, "".join(line for line in lines if "; waiting until" not in line)


@pytest.fixture
def running(tmp_path):
    """A pipeline that runs for ever, and where its checkpoint lies."""
    store = DiskStore(tmp_path / "state")
    topology = counting(generate(lambda n, random: n % 7, rate=300, paced=True))
    job = Job(follower_of(topology, store, until=None, lease_s=6.0))
    deadline = time.monotonic() + 60
    while job.status().epoch < 3:
        assert job.running and time.monotonic() < deadline
        time.sleep(0.01)
    yield job, tmp_path / "state"
    job.leave()


def test_a_running_pipeline_is_paused_looked_at_resumed_and_stopped(running):
    job, where = running
    code, said = headrace("pause", where)
    assert code == 0 and said.startswith("counting: pause taken: paused after epoch ")
    code, said = headrace("status", where)
    assert code == 0 and said.startswith("counting: paused\n")
    assert "  paused      until `headrace resume`\n" in said
    assert "  Count: 2 slots, watermark " in said
    assert ": taken, paused after epoch " in said
    code, said = headrace("ps", where)
    assert code == 0 and said.splitlines()[1].split()[:2] == ["counting", "paused"]
    assert headrace("resume", where)[0] == 0
    code, said = headrace("rescale", where, "Count", 3, "--expect-slots", 2)
    assert code == 0 and said.startswith("counting: rescale taken: Count has 3 slots since epoch ")
    code, said = headrace("savepoint", where, "s1")
    assert code == 0 and said.startswith("counting: savepoint taken: s1 holds epoch ")
    code, said = headrace("status", where, "--json")
    found = json.loads(said)
    assert (found["state"], found["savepoints"][0]["name"]) == ("running", "s1")
    assert [o["verb"] for o in found["outcomes"]] == ["pause", "resume", "rescale", "savepoint"]
    code, said = headrace("stop", where)
    assert code == 0 and said.startswith("counting: stop taken: stopped after epoch ")
    assert job.wait(60).reason == "stopped"
    code, said = headrace("status", where)
    assert code == 0 and said.startswith("counting: stopped\n") and "stop        complete" in said


def test_what_is_refused_is_an_error_that_says_why(running):
    _, where = running
    code, said = headrace("rescale", where, "Cuont", 3)
    assert code == 1
    assert "rescale: refused: there is no computation 'Cuont' with a key; there are: Count" in said
    code, said = headrace("rescale", where, "Count", 3, "--expect-slots", 5)
    assert code == 1 and "it expects slots 5, and that is 2 now" in said
    code, said = headrace("savepoint", where, "nothing", "--drop")
    assert code == 1 and "there is no savepoint 'nothing'; there are: none" in said
    code, said = headrace("rescale", where, "Count", 0)
    assert code == 2 and "0 is not in the range" in said


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
def test_where_no_pipeline_runs_a_command_says_so(verb, tmp_path):
    store = DiskStore(tmp_path / "state")
    Job(follower_of(counting([1, 2, 3]), store, lease_s=1.0)).wait(60)
    code, said = headrace(verb, tmp_path / "state")
    assert code == 1
    assert f"{verb}: pipeline 'counting' does not run on {tmp_path / 'state'}" in said
    assert "its last driver has ended (end), after epoch 2" in said
    code, said = headrace("status", tmp_path / "state")
    assert code == 0 and said.startswith("counting: ended (end)\n")


def test_a_place_without_a_checkpoint_is_refused(tmp_path):
    for verb in ("pause", "status"):
        code, said = headrace(verb, tmp_path)
        assert code == 1 and "is not a checkpoint" in said
    code, said = headrace("ps", tmp_path, tmp_path / "nowhere")
    assert code == 1 and "is not a checkpoint" in said and "there is no directory" in said


def test_a_savepoint_is_restored_elsewhere_or_in_place_after_a_question(running):
    job, where = running
    assert headrace("savepoint", where, "s1")[0] == 0
    code, said = headrace("restore", where, "s1", "--to", where.parent / "copy")
    assert code == 0 and "has the state of savepoint 's1' (epoch " in said
    assert headrace("status", where.parent / "copy")[1].startswith("counting: silent\n")
    code, said = headrace("restore", where, "s1", "--yes")
    assert code == 1 and "a pipeline runs on the checkpoint" in said
    headrace("stop", where)
    job.wait(60)
    result = CliRunner().invoke(cli, ["restore", str(where), "s1"], input="n\n")
    assert result.exit_code == 1 and "for good?" in result.output
    code, said = headrace("restore", where, "s1", "--yes")
    assert code == 0 and "give its sinks fresh places" in said
    assert headrace("status", where)[1].startswith("counting: stopped\n")


@pytest.mark.parametrize(
    "verb", ["ps", "status", "pause", "resume", "stop", "rescale", "savepoint", "restore"]
)
def test_every_command_has_help_with_examples(verb):
    code, said = headrace(verb, "--help")
    assert code == 0 and f"Examples:\n    headrace {verb} " in said
