"""Metrics, health and structured logs of real runs, without Spark."""

import io
import json
import re
import socket
import struct
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.engine.support import counting, follower_of

from headrace import Computation, state, to
from headrace.cli.main import cli
from headrace.engine.job import Job
from headrace.engine.leading.lease import read_lease
from headrace.engine.leading.loop import run_loop
from headrace.engine.leading.status import read_status
from headrace.errors import HeadraceError
from headrace.observe.metrics.json_log import JsonLog
from headrace.observe.metrics.prometheus import PrometheusListener
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.transient import Outage
from headrace.plan.progress import Notice, RunSummary, Status
from headrace.sinks import foreach
from headrace.sinks import memory as memory_sink
from headrace.sources import generate, memory
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore

DASHBOARD = Path(__file__).parents[3] / "docs" / "assets" / "grafana-headrace.json"


class Shop(Computation):
    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        if record.value == "bad":
            raise ValueError("no good")
        self.n += 1
        ctx.count("orders")
        ctx.produce(self.n)


def shop() -> Any:
    pipeline = PipelineBuilder("shop")
    values = ["a", "b", "bad", "a", "a", "c"]
    pipeline.read(
        "orders", memory(values, timestamps=[60_000_000, 70_000_000, 70_000_000, 5, 6, 7])
    )
    pipeline.compute(
        Shop, inputs={"orders": str}, outputs="sums", errors=to("dead"), late="process"
    )
    pipeline.stream("sums").write(memory_sink())
    return pipeline.freeze()


def finished() -> PrometheusListener:
    metrics = PrometheusListener()
    run_loop(follower_of(shop(), listeners=(metrics,), epoch_records=3))
    return metrics


def samples(metrics: PrometheusListener) -> dict[str, float]:
    lines = [line for line in metrics.text().decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_run_exports_its_figures_by_pipeline_and_computation() -> None:
    found = samples(finished())
    of = 'pipeline="shop"'
    by = 'computation="Shop",pipeline="shop"'

    def value(name: str, labels: str) -> float:
        wanted = set(labels.split(","))
        own = [key for key in found if key.startswith(f"{name}{{")]
        [key] = [key for key in own if set(key[len(name) + 1 : -1].split(",")) == wanted]
        return found[key]

    assert value("headrace_records_total", of) == 6
    assert value("headrace_epochs_total", of) == value("headrace_epoch", of) >= 3
    assert value("headrace_computation_records_total", by) == 6
    assert (
        value("headrace_computation_late_records_total", by)
        == value("headrace_late_records_total", of)
        == 3
    )
    assert value("headrace_computation_dead_letters_total", by) == 1
    assert value("headrace_user_count_total", f'{by},name="orders"') == 5
    assert value("headrace_computation_state_bytes", by) > 0
    assert value("headrace_computation_bytes_total", by) > 0
    assert value("headrace_computation_busy_seconds_total", by) > 0
    assert value("headrace_computation_slots", by) == 2
    assert value("headrace_outages_total", of) == value("headrace_in_outage", of) == 0


def test_the_phases_of_epochs_add_up_to_most_of_their_time() -> None:
    shares = []
    for _ in range(5):  # a pause of the machine between two phases is part of none of them
        found = samples(finished())
        phases = [
            found[f'headrace_epoch_phase_seconds_sum{{phase="{phase}",pipeline="shop"}}']
            for phase in ("plan", "job", "judge", "commit", "deliver")
        ]
        assert all(phase > 0 for phase in phases)
        shares.append(sum(phases) / found['headrace_epoch_seconds_sum{pipeline="shop"}'])
        if shares[-1] >= 0.5:
            break
    assert max(shares) >= 0.5


def test_hits_of_object_caches_are_exported() -> None:
    metrics = PrometheusListener()  # with errors=to() there would be no cached objects
    run_loop(follower_of(counting(["a", "b", "a", "a"]), listeners=(metrics,), epoch_records=2))
    found = samples(metrics)
    hits = [v for k, v in found.items() if k.startswith("headrace_computation_cache_hits_total")]
    assert sum(hits) == 1  # of a in the second epoch; the first asks for a and b in vain
    misses = [v for k, v in found.items() if k.startswith("headrace_computation_cache_misses")]
    assert sum(misses) == 2


def test_every_metric_of_the_dashboard_is_exported() -> None:
    exported = {key.partition("{")[0] for key in samples(finished())}
    exported |= {"headrace_store_requests_total"}  # a store in memory counts no requests
    dashboard = json.loads(DASHBOARD.read_text())
    named = set(re.findall(r"headrace_\w+", json.dumps(dashboard)))
    lag = "headrace_computation_watermark_lag_seconds"
    named -= {"headrace_computation_watermark_seconds", lag}
    assert len(named) > 20
    assert named - exported - {"headrace_backlog_records"} == set()
    # Gauges that need a time before the end of all time.
    metrics = PrometheusListener()
    numbers = generate(lambda n, random: n % 7, rate=300, paced=True)
    with Job(follower_of(counting(numbers), until=None, listeners=(metrics,))) as job:
        while job.status().epoch < 3:
            time.sleep(0.01)
    exported = {key.partition("{")[0] for key in samples(metrics)}
    assert {"headrace_computation_watermark_seconds", lag, "headrace_backlog_records"} <= exported


def test_requests_to_a_store_are_exported_by_purpose(tmp_path: Path) -> None:
    metrics = PrometheusListener()
    run_loop(follower_of(shop(), DiskStore(tmp_path), listeners=(metrics,)))
    text = metrics.text().decode()
    assert "# TYPE headrace_store_requests_total counter" in text


def test_outages_are_counted_and_timed() -> None:
    now = [100.0]
    metrics = PrometheusListener(clock=lambda: now[0])
    metrics.on_notice(Notice("shop", "away", "paused: the sink ..."))
    now[0] += 7
    assert samples(metrics)['headrace_in_outage{pipeline="shop"}'] == 1
    assert samples(metrics)['headrace_outage_seconds_total{pipeline="shop"}'] == 7
    metrics.on_notice(Notice("shop", "back", "the sink is back"))
    now[0] += 50
    found = samples(metrics)
    assert found['headrace_outage_seconds_total{pipeline="shop"}'] == 7
    assert found['headrace_outages_total{pipeline="shop"}'] == 1
    assert found['headrace_in_outage{pipeline="shop"}'] == 0


def test_metrics_and_health_are_served_on_this_machine_only() -> None:
    status = [Status("shop", "running", True, 7, 1, 0, 6, 0, 0, 0)]
    metrics = finished()
    with metrics.serve(0, lambda: status[0]) as server:
        assert server._server.server_address[0] == "127.0.0.1"
        code, body = get(f"{server.url}/metrics")
        assert code == 200 and b"headrace_epochs_total" in body
        code, body = get(f"{server.url}/healthz")
        assert code == 200 and json.loads(body)["healthy"] is True
        assert get(f"{server.url}/other")[0] == 404
        with pytest.raises(HeadraceError, match="--metrics-port"):
            metrics.serve(server.port)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"phase": "standby"}, 200, ""),
        ({"phase": "paused"}, 200, ""),
        ({"phase": "waiting", "outage": Outage("sink", 0.0, "refused", 9)}, 200, "the sink is"),
        ({"phase": "starting"}, 503, "not taken over"),
        ({"phase": "ended"}, 503, "has ended"),
        ({"stuck": True}, 503, "no step"),
        ({"phase": "failed", "error": "UserCodeError: no"}, 503, "UserCodeError: no"),
    ],
)
def test_health_says_why(changes: dict[str, Any], code: int, said: str) -> None:
    given = {"pipeline": "shop", "phase": "running", "running": True, "epoch": 7, "generation": 1}
    zeros = dict.fromkeys(("watermark", "records", "late", "dead", "state_bytes"), 0)
    with PrometheusListener().serve(0, lambda: Status(**given | zeros | changes)) as server:
        found, body = get(f"{server.url}/healthz")
    assert found == code
    assert said in json.loads(body)["why"]


def test_health_of_a_real_job_follows_it() -> None:
    metrics = PrometheusListener()
    job = Job(follower_of(counting(["a"]), until=None, listeners=(metrics,)))
    with metrics.serve(0, job.status) as server:
        while not job.status().epoch:
            time.sleep(0.01)
        assert get(f"{server.url}/healthz")[0] == 200
        job.leave()
        code, body = get(f"{server.url}/healthz")
    assert code == 503 and json.loads(body)["phase"] == "ended"


def test_a_structured_log_is_one_object_per_line() -> None:
    output = io.StringIO()
    log = JsonLog(output)
    with log.with_logging():
        run_loop(follower_of(shop(), listeners=(log,), epoch_records=3))
        import logging

        logging.getLogger("some.library").warning("mind the %s", "gap")
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [line["epoch"] for line in epochs] == list(range(1, len(epochs) + 1))
    assert set(epochs[0]["phases"]) == {"plan", "job", "judge", "commit", "deliver"}
    assert all(line["pipeline"] == "shop" for line in epochs)
    assert [line["reason"] for line in lines if line["event"] == "end"] == ["end"]
    assert lines[-1]["text"] == "mind the gap" and lines[-1]["level"] == "warning"
    assert all(re.fullmatch(r"\d{4}-.*Z", line["at"]) for line in lines)


def test_a_port_that_is_taken_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics_shop.py").write_text(
        "from headrace import Pipeline, sources, sinks\np = Pipeline('shop')\n"
        "p.read('x', sources.memory([1])).write(sinks.memory())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with PrometheusListener().serve(0) as server:
        answer = CliRunner().invoke(
            cli,
            ["run", "metrics_shop:p", "--checkpoint", "s", "--metrics-port", str(server.port)],
        )
    assert answer.exit_code == 1 and "choose another --metrics-port" in answer.output


def test_a_leader_writes_down_what_it_knows_of_its_run() -> None:
    store = MemoryStore()
    run_loop(follower_of(shop(), store, lease_s=1.0, epoch_records=3))
    found = read_status(store)
    assert found is not None and found.phase == "ended"
    assert [part.name for part in found.graph][:2] == ["orders", "Shop"]
    assert found.graph[1].letters == "dead" and found.graph[1].keyed
    assert [each.epoch for each in found.epochs] == list(range(1, len(found.epochs) + 1))
    assert all(each.phases.job > 0 and each.phases.commit > 0 for each in found.epochs)
    [letter] = found.letters
    assert (letter.owner, letter.error, letter.value) == ("Shop", "ValueError: no good", "bad")
    assert found.computations["Shop"].records == 6
    assert found.notices[-1].kind == "ended"


def test_nobody_needs_the_status() -> None:
    store = MemoryStore()
    run_loop(follower_of(shop(), store, lease_s=1.0))
    for torn in (b"", b"headrace-status 3 0\n{}\n", b"nonsense"):
        store.write_volatile("STATUS", torn)
        assert read_status(store) is None
    run_loop(follower_of(shop(), store, lease_s=1.0))
    assert read_status(store) is not None


def test_half_of_a_surrogate_pair_stops_neither_the_log_nor_the_end_of_a_run(
    tmp_path: Path,
) -> None:
    """Names of files and answers of servers may hold it, and no JSON can."""

    def refuse(rows: Any, epoch: int) -> None:
        raise ValueError("no such file: \udcff")

    pipeline = PipelineBuilder("odd")
    pipeline.read("values", memory(["a"]))
    pipeline.stream("values").write(foreach(refuse))
    output, store = io.StringIO(), DiskStore(tmp_path)
    log = JsonLog(output, pipeline="odd")
    with pytest.raises(HeadraceError, match="no such file"):
        run_loop(follower_of(pipeline.freeze(), store, lease_s=1.0, listeners=(log,)))
    log.on_notice(Notice("odd", "away", "\udcff ü"))
    found = [json.loads(line) for line in output.getvalue().encode().splitlines()]
    assert [each["pipeline"] for each in found] == ["odd"] * len(found)
    assert found[-1]["text"] == "\\udcff ü"
    lease = read_lease(store)
    assert lease is not None and lease.state == "released" and "udcff" in lease.reason


def test_the_first_figures_have_the_pipelines_name() -> None:
    metrics = PrometheusListener(pipeline="shop")
    assert 'headrace_in_outage{pipeline="shop"} 0.0' in metrics.text().decode()


def test_a_scraper_that_goes_away_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with PrometheusListener().serve(0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\n")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert get(f"{server.url}/metrics")[0] == 200
    assert capfd.readouterr().err == ""


class Odd(Computation):
    def process_record(self, record: Any, ctx: Any) -> None:
        ctx.count('a.b "\n\\', record.value)


def odd(values: list[Any], **options: Any) -> Any:
    pipeline = PipelineBuilder("odd")
    pipeline.read("values", memory(values))
    pipeline.compute(Odd, inputs={"values": str}, outputs="none", name="x.y", **options)
    return pipeline.freeze()


def test_names_of_counts_may_have_dots_quotes_and_lines() -> None:
    metrics = PrometheusListener()
    run_loop(follower_of(odd([2, 3]), listeners=(metrics,)))
    [counts] = [
        family
        for family in text_string_to_metric_families(metrics.text().decode())
        if family.name == "headrace_user_count"
    ]
    [sample] = [each for each in counts.samples if each.name.endswith("_total")]
    assert sample.labels == {"pipeline": "odd", "computation": "x.y", "name": 'a.b "\n\\'}
    assert sample.value == 5


@pytest.mark.parametrize("n", [1.5, 2**63, "2"])
def test_what_cannot_be_counted_is_an_error_of_the_hook(n: Any) -> None:
    with pytest.raises(HeadraceError, match=r"computation 'x\.y'.*ctx\.count: x\.y\.a\.b"):
        run_loop(follower_of(odd([n])))
    metrics = PrometheusListener()
    run_loop(follower_of(odd([n, 4], errors=to("dead")), listeners=(metrics,)))
    assert 'headrace_dead_letters_total{pipeline="odd"} 1.0' in metrics.text().decode()


@pytest.mark.parametrize("end", ["end", "failure"])
def test_an_outage_ends_with_its_run_and_its_time_stays_counted(end: str) -> None:
    now = [100.0]
    metrics = PrometheusListener(clock=lambda: now[0], pipeline="shop")
    metrics.on_notice(Notice("shop", "away", "the sink"))
    now[0] = 107.0
    if end == "end":
        metrics.on_end(RunSummary("shop", 1, 1, 0, 0, "stopped"))
    else:
        metrics.on_failure(HeadraceError("given up"))
    now[0] = 200.0
    found = samples(metrics)
    assert found['headrace_outage_seconds_total{pipeline="shop"}'] == 7
    assert found['headrace_in_outage{pipeline="shop"}'] == 0


def test_without_a_job_the_health_is_what_listeners_are_told() -> None:
    metrics = PrometheusListener(pipeline="shop")
    with metrics.serve(0) as server:
        assert get(f"{server.url}/healthz")[0] == 503  # it starts
        run_loop(follower_of(shop(), listeners=(metrics,)))
        code, body = get(f"{server.url}/healthz")
        assert (code, json.loads(body)["phase"]) == (503, "ended")
