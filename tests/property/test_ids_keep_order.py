"""A source with `id=`: each key still meets the records of one split in their order."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.support import driver_of, run

from headrace import Computation, Pipeline, service, sources, state
from headrace.sinks import memory as memory_sink


class Meet(Computation):
    """Tells what came to it, and how many came before."""

    met: int = state(0)

    def process_record(self, record, ctx):
        self.met += 1
        ctx.produce({**record.value, "nth": self.met})


class MeetTable(Computation):
    met: int = state(0)

    def process_table(self, table, ctx):
        counts = ctx.read()["met"].to_pylist()
        rows = []
        columns = [table[name].to_pylist() for name in ("key_index", "split", "n")]
        for key, split, n in zip(*columns, strict=True):
            counts[key] += 1
            rows.append({"split": split, "n": n, "nth": counts[key], "key": ctx.keys()[key]})
        ctx.write(met=counts)
        ctx.produce_table({c: [row[c] for row in rows] for c in rows[0]})


class Calling(Meet):
    def process_record(self, record, ctx):
        ctx.call(nothing, record.value["n"])
        super().process_record(record, ctx)


@service
def nothing(n: int) -> int:
    return n


def records(dice: random.Random) -> dict[str, list[dict[str, Any]]]:
    """Splits of records, some of which come twice."""
    found: dict[str, list[dict[str, Any]]] = {}
    for split in ("a", "b", "c")[: dice.randint(1, 3)]:
        rows = [
            {"id": f"{split}{n}", "split": split, "key": f"k{dice.randrange(3)}", "n": n, "at": n}
            for n in range(dice.randint(1, 40))
        ]
        again = [dice.choice(rows) for _ in range(dice.randint(0, 5))]
        for row in again:
            rows.insert(dice.randint(rows.index(row) + 1, len(rows)), row)
        found[split] = rows
    return found


def met(
    splits: dict[str, list[dict[str, Any]]], how: str, epoch_records: int, **timing: Any
) -> list[Any]:
    """What the keys met, each split being a file."""
    with tempfile.TemporaryDirectory() as directory:
        for split, rows in splits.items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            Path(directory, f"{split}.jsonl").write_text(text)
        p = Pipeline("ids")
        source = sources.jsonl(directory, timestamp="at", lateness="1h", **timing)
        stream = p.read("rows", source)
        named = "rows" if how in ("plain", "table", "calling") else "steps"
        if how == "steps":
            kept = stream.filter(lambda v: v["n"] >= 0).flat_map(lambda v: [v])
            kept.map(lambda v: v).named(named)
        elif how == "columns":
            stream.map_table(lambda table: table).named(named)
        kind = {"table": MeetTable, "calling": Calling}.get(how, Meet)
        p.compute(kind, inputs={named: "key"}, outputs="met", name="M")
        out = memory_sink()
        p.stream("met").write(out)
        driver = driver_of(p.freeze(), epoch_records=epoch_records, slots=3)
        run(driver)
        return out.rows


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(["plain", "steps", "columns", "table", "calling"]))
def test_records_of_one_split_reach_a_key_in_their_order(seed: int, how: str) -> None:
    dice = random.Random(seed)
    splits = records(dice)
    rows = met(splits, how, dice.choice((3, 10, 1000)), id="id", id_slack="1h")
    unique = {(row["split"], row["n"]) for rows in splits.values() for row in rows}
    assert sorted((row["split"], row["n"]) for row in rows) == sorted(unique)
    for key in {row["key"] for row in rows}:
        for split in splits:
            mine = [row for row in rows if (row["key"], row["split"]) == (key, split)]
            in_turn = [row["n"] for row in sorted(mine, key=lambda row: row["nth"])]
            assert in_turn == sorted(in_turn), f"seed {seed}, {key}, {split}"


def test_order_needs_no_origins_where_nothing_is_taken_apart() -> None:
    p = Pipeline("plain")
    p.read("rows", sources.memory([], timestamp="at"))
    p.compute(Meet, inputs={"rows": "key"}, outputs="met")
    topology = p.freeze()
    assert not topology.merged and not topology.needs_origin


@pytest.mark.parametrize("timing", [{}, {"id": "id"}])
def test_what_a_key_meets_is_the_same_with_ids_and_without(timing: dict[str, str]) -> None:
    rows = [{"id": f"r{n}", "key": f"c{n % 3}", "split": "a", "n": n, "at": n} for n in range(300)]
    found = met({"a": rows}, "plain", 1000, **timing)
    for key in ("c0", "c1", "c2"):
        mine = sorted((row["nth"], row["n"]) for row in found if row["key"] == key)
        assert len(mine) == 100 and [n for _, n in mine] == sorted(n for _, n in mine)
