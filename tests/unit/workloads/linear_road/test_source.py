"""Input files and the paced source: what is written is read, at its time, second by second."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.unit.workloads.linear_road.support import SHARED_DATA

from headrace import SECOND
from headrace.bench.report.page import read_documents
from headrace.cli.main import cli
from headrace.cli.workloads.linear_road import _document, _write
from headrace.errors import SourceError
from headrace.model.source import Workspace
from headrace.store.memory import MemoryStore
from headrace.workloads.linear_road import source as source_module
from headrace.workloads.linear_road.columns import REPORT
from headrace.workloads.linear_road.given import asked_of
from headrace.workloads.linear_road.input_files import (
    read_history,
    read_index,
    read_seconds,
    write_text,
    write_traffic,
)
from headrace.workloads.linear_road.measuring import (
    PERCENTILES,
    Latency,
    RoadOutcome,
    RoadSettings,
    find_largest,
)
from headrace.workloads.linear_road.source import LEAD_S, RoadFiles
from headrace.workloads.linear_road.traffic import Traffic, TrafficSimulation

TINY = Traffic(roads=2, minutes=2, seed=3, first_rate=4, last_rate=12, asking=0.2)


@pytest.fixture
def files(tmp_path):
    write_traffic(tmp_path / "in", TINY)
    return tmp_path / "in"


def all_of(source, records=50):
    """Every line, range by range."""
    at, batches = 0, []
    while True:
        found = source.plan("roads", at, records)
        batches.append(source.read("roads", found).columns)
        at = found.end
        if found.last:
            return pa.Table.from_batches(batches)


def test_traffic_is_the_same_for_a_seed_and_has_the_rate_it_should():
    one, other = (pa.Table.from_batches(TrafficSimulation(TINY).seconds()) for _ in range(2))
    assert one.equals(other)
    reports = one.filter(pa.compute.equal(one["type"], REPORT)).to_pylist()
    for second in (0, 60, 119):
        for xway in (0, 1):
            mine = [r for r in reports if (r["time"], r["xway"]) == (second, xway)]
            assert len(mine) == TINY.rate(second)


def test_every_vehicle_reports_every_thirty_seconds_until_it_exits_and_some_come_back():
    traffic = Traffic(minutes=8, seed=3, first_rate=5, last_rate=20, segments=(0, 6))
    table = pa.Table.from_batches(TrafficSimulation(traffic).seconds())
    last, back = {}, 0
    for row in table.filter(pa.compute.equal(table["type"], REPORT)).to_pylist():
        before = last.get(row["vid"])
        if before is not None and before["lane"] != 4:
            assert row["time"] - before["time"] == 30
            assert (row["xway"], row["dir"]) == (before["xway"], before["dir"])
        elif before is not None:
            back += 1
            assert row["lane"] == 0
        assert row["seg"] == row["pos"] // 5280
        last[row["vid"]] = row
    assert back > 20


def test_what_is_written_is_read_however_ranges_are_cut(files):
    made = pa.Table.from_batches(TrafficSimulation(TINY).seconds())
    source = RoadFiles(files)
    for records in (1, 50, 10**6):
        assert all_of(source, records).equals(made)
    whole = source.plan("roads", 0, 10**6)
    source.cut_from = 10
    pieces = source.parallel("roads", whole, 3)
    read = [source.read("roads", piece).columns for piece in pieces]
    assert len(read) == 3 and pa.Table.from_batches(read).equals(made)


def test_a_second_is_complete_with_its_last_line(files):
    source = RoadFiles(files)
    found = source.plan("roads", 0, 1)
    assert found.end == read_index(files).lines[0]
    assert source.low_watermark("roads", found.end) == 1 * SECOND
    assert source.low_watermark("roads", found.end - 1) == 0


def test_seconds_arrive_at_their_time_and_a_restart_keeps_the_clock(files, monkeypatch):
    class Clock:
        now = 1000.0

        @classmethod
        def time(cls):
            return cls.now

    monkeypatch.setattr(source_module, "time", Clock)
    lines = read_index(files).lines
    store = MemoryStore()
    source = RoadFiles(files, paced_from=60, speed=2.0)
    source.prepare(Workspace(store))
    loaded = source.plan("roads", 0, 10**6)
    assert loaded.end == sum(lines[:60]), "what lies before is there at once"
    assert source.plan("roads", loaded.end, 10**6) is None, "now the clock is set"
    Clock.now = 1000.0 + LEAD_S
    assert source.plan("roads", loaded.end, 10**6).end == sum(lines[:61])
    again = RoadFiles(files, paced_from=60, speed=2.0)
    again.prepare(Workspace(store))
    Clock.now += 1.0
    assert again.plan("roads", loaded.end, 10**6).end == sum(lines[:63])
    assert (again.arrival(59), again.arrival(62)) == (None, 1000.0 + LEAD_S + 1.0)


def test_other_files_than_the_plan_names_are_refused(files, tmp_path):
    planned = RoadFiles(files).plan("roads", 0, 100)
    write_traffic(tmp_path / "other", Traffic(minutes=2, seed=9, first_rate=4, last_rate=12))
    with pytest.raises(SourceError, match="other input than the plan"):
        RoadFiles(tmp_path / "other").read("roads", planned)


def test_a_directory_is_never_overwritten_with_other_traffic(files):
    assert write_traffic(files, TINY) == read_index(files)
    with pytest.raises(SourceError, match="has other input"):
        write_traffic(files, Traffic(minutes=2, seed=4))


def test_files_without_an_index_are_refused(tmp_path):
    with pytest.raises(SourceError, match=r"has no index\.json"):
        RoadFiles(tmp_path)


def test_text_with_gaps_other_types_and_history_is_read(tmp_path):
    text = tmp_path / "roads.dat"
    text.write_text(
        "0,0,107,32,0,0,0,10,53320,-1,-1,-1,-1,-1,-1\n"
        "4,1,107,-1,0,-1,-1,-1,-1,8,3,9,1,40,-1\n"
        "3,3,107,-1,0,-1,-1,-1,-1,7,-1,-1,-1,-1,60\n"
    )
    history = tmp_path / "history"
    history.write_text("107,60,0,93\n")
    index = write_text(tmp_path / "in", text, history)
    assert (index.roads, index.lines) == (1, [1, 0, 0, 1])
    asked = asked_of(tmp_path / "in")
    assert asked.history == {(107, 60, 0): 93}
    assert [(r.qid, r.day) for r in asked.requests] == [(7, 60)]
    assert [len(reports) for _, reports in asked.reports(0)] == [1, 0, 0, 0]


def test_roads_are_those_with_reports_whatever_requests_name(tmp_path):
    text = tmp_path / "roads.dat"
    text.write_text(
        "0,0,107,32,1,0,0,10,53320,-1,-1,-1,-1,-1,-1\n3,0,107,-1,9,-1,-1,-1,-1,7,-1,-1,-1,-1,60\n"
    )
    assert write_text(tmp_path / "in", text).roads == 2
    assert [request.xway for request in asked_of(tmp_path / "in").requests] == [9]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0,0,1,32,0,0,0,100,1,-1,-1,-1,-1,-1,-1", "seg is 100, not 0 to 99"),
        ("0,0,1,32,0,5,0,1,1,-1,-1,-1,-1,-1,-1", "lane is 5, not 0 to 4"),
        ("0,0,1,-1,0,1,0,1,1,-1,-1,-1,-1,-1,-1", "speed is -1"),
        ("0,0,1,,0,1,0,1,1,-1,-1,-1,-1,-1,-1", r"line 3: speed is empty"),
        ("2,0,1,-1,0,-1,-1,-1,-1,,-1,-1,-1,-1,-1", r"line 3: qid is empty"),
        ("7,0,1,32,0,1,0,1,1,-1,-1,-1,-1,-1,-1", r"line 3: type is 7, not one of 0, 2, 3, 4"),
        (
            "0,1447907575,1,32,0,1,0,1,1,-1,-1,-1,-1,-1,-1",
            r"line 3: time is 1447907575: times are seconds since the input began",
        ),
        ("0,0,1,x,0,1,0,1,1,-1,-1,-1,-1,-1,-1", r"line 3: speed: .*invalid value 'x'"),
        ("0,0,1,32,0,1,0,1,1", r"line 3: Expected 15 columns, got 9"),
        ("0,0,1,70000,0,1,0,1,1,-1,-1,-1,-1,-1,-1", r"line 3: speed is 70000, which is not -32768"),
        ("0,0,1,32", "is not Linear Road input"),
        ("0,0,x,32,0,5,0,1,1,-1,-1,-1,-1,-1,-1", "is not Linear Road input"),
    ],
)
def test_text_that_cannot_be_is_refused(tmp_path, line, reason):
    text = tmp_path / "roads.dat"
    text.write_text("0,0,1,32,0,1,0,1,1,-1,-1,-1,-1,-1,-1\n\n" + line + "\n")
    with pytest.raises(SourceError, match=reason):
        write_text(tmp_path / "in", text)
    assert not (tmp_path / "in" / "index.json").exists()


def test_text_out_of_order_and_history_that_cannot_be_are_refused_by_line(tmp_path):
    text, history = tmp_path / "roads.dat", tmp_path / "history.csv"
    lines = [f"0,{time},1,32,0,1,0,1,1,-1,-1,-1,-1,-1,-1" for time in (1, 2, 0)]
    text.write_text("\n".join(["4" + lines[0][1:], *lines]))
    with pytest.raises(SourceError, match="line 4: time is 0 after 2: lines must be in the order"):
        write_text(tmp_path / "in", text)
    text.write_text(lines[0])
    for wrong in (b"1,2,0,5\n1,2,0,99999999999999999999", b"1,2,0,5\n\xff", b"1,2,0,5\n1,2,0"):
        history.write_bytes(wrong)
        with pytest.raises(SourceError, match="line 2 is not vid,day,xway,toll"):
            write_text(tmp_path / "in", text, history)


def outcome(held):
    latency = Latency(1, 0, {f"p{p:g}": 1.0 for p in PERCENTILES})
    return RoadOutcome(
        roads=1, input="", seconds=60, lines=1, settings=RoadSettings(from_minute=0), run_s=1.0,
        loading_lines_per_s=None, answers={}, timed={"all": latency}, cores=2, load_before=[],
        load_after=[], held=held,
    )  # fmt: skip


@pytest.mark.parametrize(("held", "reached"), [(None, False), (False, False), (True, True)])
def test_a_run_that_was_not_validated_reaches_no_bar(held, reached):
    [bar] = _document(outcome(held))["bars"]
    assert (bar["measured"], bar["reached"]) == (1.0, reached)


def test_the_document_has_its_day_and_commit_as_those_of_other_benchmarks(tmp_path):
    _write(tmp_path / "new" / "linear-road.json", _document(outcome(True)))
    found = read_documents(tmp_path / "new")["linear-road"]
    assert {"day", "commit"} <= found.keys() and found["roads"] == 1


@pytest.mark.parametrize(
    "wrong", [["--speed", "nan"], ["--speed", "inf"], ["--speed", "0"], ["--begin-minute", "60"]]
)
def test_numbers_that_cannot_be_are_refused(wrong):
    done = CliRunner().invoke(cli, ["linear-road", *wrong])
    assert done.exit_code and isinstance(done.exception, SystemExit)
    assert wrong[0] in done.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--load-only", "--validate-only"], "one of --load-only"),
        (["--find-largest", "--load-only", "--from-minute", "1"], "one of --load-only"),
        (["--load-only"], "--from-minute"),
        (["--history", __file__], "--history goes with a text file"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_the_run(tmp_path, given, said):
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["linear-road", *given, "--output", str(out)])
    assert done.exit_code == 1 and said in done.output and not out.exists()


def test_the_sample_becomes_files(tmp_path):
    sample = SHARED_DATA / "linear_road_20s.dat"
    if not sample.exists():
        pytest.skip(f"needs the real data in {SHARED_DATA}")
    index = write_text(tmp_path, sample)
    assert (sum(index.lines), index.seconds, index.roads) == (280, 21, 1)
    assert read_history(tmp_path).num_rows == 0
    assert sum(batch.num_rows for batch in read_seconds(tmp_path, 0, 21)) == 280
    assert json.loads((tmp_path / "index.json").read_text())["roads"] == 1


@pytest.mark.parametrize("largest", [0, 1, 2, 5, 8, 13, 20])
def test_the_largest_is_found(largest):
    tried = []
    assert find_largest(20, lambda roads: tried.append(roads) or roads <= largest) == largest
    assert len(tried) == len(set(tried)) <= 10 and max(tried) <= 20


def test_traffic_may_begin_late_and_a_source_may_wait_with_its_clock(tmp_path):
    late = Traffic(roads=1, minutes=3, seed=3, first_rate=4, last_rate=12, begin_minute=1)
    index = write_traffic(tmp_path, late)
    assert set(index.lines[:60]) == {0} and min(index.lines[60:]) >= late.rate(60) > 4
    source = RoadFiles(tmp_path, paced_from=120, waits=True)
    source.prepare(Workspace(MemoryStore()))
    found = source.plan("roads", 0, 10**9)
    assert found.end == sum(index.lines[:120]) and not found.last
    assert source.plan("roads", found.end, 10**9) is None
    assert source.began is None
