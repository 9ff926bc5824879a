"""A driver that is killed again and again writes every row to its table once.

HEADRACE_TABLE_KILLS says how many kills of `headrace run` on Spark, for each kind of table; `make
chaos` has 20. Without Spark a life takes seconds: HEADRACE_TABLE_QUICK_KILLS, by default 3.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.servers.postgres import postgres
from tests.spark.support import environment

KILLS = int(os.environ.get("HEADRACE_TABLE_KILLS", "0"))
QUICK_KILLS = int(os.environ.get("HEADRACE_TABLE_QUICK_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_TABLE_SEED", "20261117"))
EPOCH_RECORDS, KEYS = 10, 7
LIFE_S = 400.0
POLL_S = 0.1
"""A look at a table costs time of the same two processors on which the driver runs."""

Rows = list[tuple[int, int, int]]


Table = tuple[dict[str, str], Callable[[], Rows], Callable[[], int]]
"""What the program needs to know; a table's rows; how many there are, which costs less."""


def postgres_table(where: Path) -> Table:
    import psycopg

    server, name = postgres(), f"killed_{random.randrange(2**40)}"

    def asked(what: str) -> list[Any]:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            found = connection.execute("SELECT to_regclass(%s)", [name]).fetchone()
            if found == (None,):
                return []
            return connection.execute(f"SELECT {what} FROM {name}").fetchall()  # type: ignore[arg-type]

    def count() -> int:
        return sum(found for (found,) in asked("count(*)"))

    surroundings = {"TABLE_TARGET": server.dsn(), "TABLE_NAME": name}
    return surroundings, lambda: asked("n, k, count"), count


def delta_table(where: Path) -> Table:
    deltalake = pytest.importorskip("deltalake")
    path = str(where / "table")

    def rows() -> Rows:
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        table = deltalake.DeltaTable(path).to_pyarrow_table()
        return list(zip(*(table[name].to_pylist() for name in ("n", "k", "count")), strict=True))

    def count() -> int:
        there = deltalake.DeltaTable.is_deltatable(path)
        return deltalake.DeltaTable(path).count() if there else 0

    return {"TABLE_TARGET": path}, rows, count


def iceberg_table(where: Path) -> Table:
    library = pytest.importorskip("pyiceberg.catalog")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{where}/catalog.db",
        "warehouse": f"file://{where}/warehouse",
    }
    catalog = library.load_catalog("default", **properties)

    def rows() -> Rows:
        if not catalog.table_exists("kills.numbers"):
            return []
        table = catalog.load_table("kills.numbers").scan().to_arrow()
        return list(zip(*(table[name].to_pylist() for name in ("n", "k", "count")), strict=True))

    def count() -> int:
        if not catalog.table_exists("kills.numbers"):
            return 0
        snapshot = catalog.load_table("kills.numbers").current_snapshot()
        return int(snapshot.summary["total-records"]) if snapshot else 0

    surroundings = {"TABLE_TARGET": "kills.numbers", "TABLE_CATALOG": json.dumps(properties)}
    return surroundings, rows, count


TABLES = pytest.mark.parametrize(
    "make", [postgres_table, delta_table, iceberg_table], ids=["postgres", "delta", "iceberg"]
)


@TABLES
@pytest.mark.spark
@pytest.mark.timeout(KILLS * 600 + 600)
@pytest.mark.skipif(
    not KILLS, reason="takes minutes of drivers starting and dying: HEADRACE_TABLE_KILLS=20"
)
def test_killed_again_and_again_a_driver_writes_every_row_once(make: Any, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "headrace.cli.main", "run", "tests.servers.programs.tables:pipeline",
        "--checkpoint", str(tmp_path / "state"), "--master", "local[1]", "--slots", "1",
        "--until", "end", "--epoch-records", str(EPOCH_RECORDS),
    ]  # fmt: skip
    kill_again_and_again(make, tmp_path, command, KILLS)


@TABLES
@pytest.mark.timeout(QUICK_KILLS * 60 + 300)
def test_killed_without_spark_a_driver_writes_every_row_once(make: Any, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.servers.programs.table_life"]
    command = [*program, str(tmp_path / "state"), str(EPOCH_RECORDS)]
    kill_again_and_again(make, tmp_path, command, QUICK_KILLS)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a driver with all its children, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_again_and_again(make: Any, tmp_path: Path, command: list[str], kills: int) -> None:
    dice = random.Random(SEED)
    total = (kills * 8 + 6) * EPOCH_RECORDS
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({"n": n, "k": n % KEYS}) + "\n" for n in range(total)))
    surroundings, rows, count = make(tmp_path)
    surroundings["TABLE_INPUT"] = str(lines)
    said = tmp_path / "said.txt"

    def start() -> subprocess.Popen[bytes]:
        # Into a file, not a pipe: a pipe ends only when the last child of Spark has let go of it.
        with open(said, "wb") as out:
            return subprocess.Popen(
                command,
                env=environment(**surroundings),
                stdout=subprocess.DEVNULL,
                stderr=out,
                start_new_session=True,
            )

    for kill in range(kills):
        wanted = count() + dice.choice([1, 1, 2, 3]) * EPOCH_RECORDS
        process = start()
        began = time.monotonic()
        try:
            while count() < wanted and time.monotonic() < began + LIFE_S:
                assert process.poll() is None, (kill, said.read_text()[-2000:])
                time.sleep(POLL_S)
            time.sleep(dice.uniform(0, 0.3))
            assert process.poll() is None, "it ended before it could be killed: give it more input"
        finally:
            end(process)
        found = rows()
        assert len(found) >= wanted, f"kill {kill} (seed {SEED}): no progress in {LIFE_S} s"
        assert len(found) == len(set(found)), f"kill {kill} (seed {SEED}): rows are repeated"
        lived = time.monotonic() - began
        print(f"kill {kill + 1}: {len(found)} rows, after {lived:.1f} s", flush=True)
    process = start()
    try:
        process.wait(timeout=3 * LIFE_S)
    finally:
        end(process)
    assert process.returncode == 0, said.read_text()[-2000:]
    expected = [(n, n % KEYS, n // KEYS + 1) for n in range(total)]
    assert sorted(rows()) == expected, f"seed {SEED}"
