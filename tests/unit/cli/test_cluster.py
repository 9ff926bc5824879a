"""A cluster for trying out, without starting one: its processes, its directory, what is said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace.cli.cluster.group import started_text
from headrace.cli.cluster.local_cluster import RECORD, ClusterRecord, record_in, stop
from headrace.cli.cluster.processes import ProcessSeen, family, from_ps, processes
from headrace.cli.main import cli
from headrace.errors import HeadraceError

MARK = "-Dheadrace.cluster=0123456789abcdef"
RECORDED = ClusterRecord(MARK, "spark://127.0.0.1:1", "http://127.0.0.1:2", 3, 1, "1g")


def headrace(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="headrace")


def test_a_family_is_what_has_the_mark_and_what_descends_from_it() -> None:
    worker = ProcessSeen(10, 1, "a", f"java {MARK} Worker")
    executor, python = ProcessSeen(11, 10, "b", "java Executor"), ProcessSeen(12, 11, "c", "python")
    stranger = ProcessSeen(13, 1, "d", "java -Dheadrace.cluster=other Worker")
    its_child = ProcessSeen(14, 13, "e", "java Executor")
    seen = [python, its_child, executor, stranger, worker]
    assert family(MARK, seen) == [worker, executor, python]
    assert family(MARK, [ProcessSeen(5, 5, "f", MARK)]) == [ProcessSeen(5, 5, "f", MARK)]
    assert family(MARK, []) == []


def test_ps_is_read_where_there_is_no_proc() -> None:
    answer = (
        "    1     0 Ss   Wed Nov 18 01:00:00 2026 /sbin/launchd\n"
        "   22     1 Z    Wed Nov 18 01:00:01 2026 (ended)\n"
        f"  333     1 S+   Wed Nov 18 01:00:02 2026 java {MARK} a b\n"
    )
    assert from_ps(answer) == [
        ProcessSeen(1, 0, "Wed Nov 18 01:00:00 2026", "/sbin/launchd"),
        ProcessSeen(333, 1, "Wed Nov 18 01:00:02 2026", f"java {MARK} a b"),
    ]


def test_this_process_is_among_those_that_run_and_an_ended_one_is_not() -> None:
    assert os.getpid() in {each.pid for each in processes()}
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert ended.pid not in {each.pid for each in processes()}
    ended.wait()


def test_stop_ends_what_has_the_mark_and_ignores_sigterm(tmp_path: Path) -> None:
    """It has children, too; a process without the mark is left alone."""
    place = tmp_path / "cluster"
    place.mkdir()
    (place / RECORD).write_bytes(msgspec.json.encode(RECORDED))
    deaf = "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    deaf += "print(p.pid, flush=True); p.wait()"
    ours = subprocess.Popen([sys.executable, "-c", deaf, MARK], stdout=subprocess.PIPE, text=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert ours.stdout is not None
        child = int(ours.stdout.readline())
        assert record_in(place) == RECORDED
        assert stop(place, RECORDED, end_s=0.3) == 2
        running = {each.pid for each in processes()}
        assert ours.pid not in running and child not in running and other.pid in running
        assert not place.exists()
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_stop_ends_a_child_that_outlives_its_parent(tmp_path: Path) -> None:
    """It has another parent then, and no mark."""
    place = tmp_path / "cluster"
    place.mkdir()
    mortal = "import subprocess, sys; "
    mortal += "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    mortal += "print(p.pid, flush=True); p.wait()"
    ours = subprocess.Popen([sys.executable, "-c", mortal, MARK], stdout=subprocess.PIPE, text=True)
    # Whoever starts a process waits for it, or it stays a zombie with its number.
    waits = threading.Thread(target=ours.wait)
    waits.start()
    assert ours.stdout is not None
    child = int(ours.stdout.readline())
    try:
        assert stop(place, RECORDED, end_s=0.5) == 2
        assert child not in {each.pid for each in processes()}
    finally:
        for pid in (ours.pid, child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        waits.join()


def test_what_a_dead_cluster_left_is_found_and_cleaned(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    place.mkdir()
    (place / RECORD).write_bytes(msgspec.json.encode(RECORDED))
    answer = headrace("cluster", "status", "--dir", place)
    assert answer.exit_code == 1
    assert "0 of 3 workers" in answer.output and "not all of the cluster runs" in answer.output
    assert headrace("cluster", "stop", "--dir", place).exit_code == 0
    assert not place.exists()


def test_directories_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "work.txt").write_text("mine")
    for verb in ("start", "stop", "status"):
        answer = headrace("cluster", verb, "--dir", tmp_path)
        assert answer.exit_code == 1, answer.output
    assert (tmp_path / "work.txt").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(HeadraceError, match="not a directory of yours"):
        record_in(link)
    (tmp_path / RECORD).write_text("{")
    assert "damaged" in headrace("cluster", "stop", "--dir", tmp_path).output


def test_the_next_commands_are_printed() -> None:
    text = "\n".join(started_text(RECORDED, Path("/x"), False))
    assert "3 executors of 1 core and 1g" in text
    assert "--master spark://127.0.0.1:1\n" in text and "--conf" not in text
    assert text.endswith("headrace cluster stop")
    small = msgspec.structs.replace(RECORDED, memory="512m", executors=1, cores=2)
    text = "\n".join(started_text(small, Path("/x"), True))
    assert "1 executor of 2 cores" in text and "--conf spark.executor.memory=512m" in text
    assert text.endswith("headrace cluster stop --dir /x")


@pytest.mark.parametrize("wrong", [("--executors", "0"), ("--memory", "1"), ("--memory", "0g")])
def test_wrong_sizes_are_refused(wrong: tuple[str, str], tmp_path: Path) -> None:
    assert headrace("cluster", "start", "--dir", tmp_path / "new", *wrong).exit_code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["start", "status", "stop"])
def test_a_place_below_a_file_is_named(verb: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = headrace("cluster", verb, "--dir", tmp_path / "file" / "inner")
    assert answer.exit_code == 1
    assert answer.output.splitlines()[-1] == f"Error: {tmp_path}/file/inner: Not a directory"
