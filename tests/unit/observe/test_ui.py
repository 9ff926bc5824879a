"""The page's server without a browser: who may ask, what it answers, what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import counting, follower_of

from headrace import Computation, state
from headrace.engine.job import Job
from headrace.engine.leading.status import read_status
from headrace.errors import HeadraceError
from headrace.observe.ui.guard import TOKENS_MAX, Guard
from headrace.observe.ui.server import UiServer
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks import memory as memory_sink
from headrace.sources import generate, memory
from headrace.store.disk import DiskStore


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Path]]:
    where = tmp_path_factory.mktemp("ui") / "state"
    numbers = generate(lambda n, random: n % 7, rate=300, paced=True)
    job = Job(follower_of(counting(numbers), DiskStore(where), until=None, lease_s=6.0))
    while job.status().epoch < 3:
        assert job.running
        time.sleep(0.01)
    yield job, where
    job.leave()


@pytest.fixture(scope="module")
def server(job: tuple[Job, Path]) -> Iterator[UiServer]:
    with UiServer([str(job[1])]) as server:
        yield server


def ask(
    server: UiServer, path: str, *, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("GET" if body is None else "POST", path, data, headers or {})
    answer = connection.getresponse()
    text = answer.read()
    given = dict(answer.getheaders())
    connection.close()
    is_json = given["Content-Type"] == "application/json"
    return answer.status, json.loads(text) if is_json else text.decode(), given


def token(server: UiServer) -> str:
    page = ask(server, "/")[1]
    return re.search(r'name="headrace-token" content="([^"]+)"', page)[1]


def own(server: UiServer, **changes: str | None) -> dict[str, str]:
    headers = {
        "Origin": f"http://127.0.0.1:{server.port}",
        "Content-Type": "application/json",
        "X-Headrace-Token": token(server),
        **changes,
    }
    return {name: value for name, value in headers.items() if value is not None}


def test_a_pipeline_is_told_with_its_graph_epochs_and_slots(server: UiServer) -> None:
    deadline = time.monotonic() + 30
    while True:
        code, found, _ = ask(server, "/api/pipeline/0")
        assert code == 200 and found["error"] == ""
        if found["status"] and len(found["status"]["epochs"]) > 2:
            break
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert found["overview"]["state"] == "running"
    kinds = {part["name"]: part["kind"] for part in found["status"]["graph"]}
    assert kinds == {"values": "source", "Count": "computation", "counts": "sink"}
    assert len(found["status"]["epochs"][0][3]) == 5  # phases
    ring = found["rings"]["Count"]
    assert [slot[0] for slot in ring["slots"]] == [0, 1]
    assert sum(slot[2] for slot in ring["slots"]) == pytest.approx(1.0, abs=1e-4)
    assert found["records_of"]["Count"] > 0
    [listed] = ask(server, "/api/pipelines")[1]["pipelines"]
    assert listed["pipeline"] == "counting" and listed["epoch"] >= 3


def test_the_state_of_a_key_is_looked_up(server: UiServer) -> None:
    code, found, _ = ask(server, "/api/pipeline/0/state?computation=Count&key=key%201")
    assert code == 200
    assert found["found"] is False or found["state"][0][0] == "n"
    code, found, _ = ask(server, "/api/pipeline/0/keys?computation=Count")
    assert code == 200 and all(each["key"].startswith('"key ') for each in found["keys"])
    code, found, _ = ask(server, "/api/pipeline/0/state?computation=Cuont&key=1")
    assert code == 409 and "Cuont" in found["error"]


def test_numbers_beyond_a_browsers_and_what_json_lacks_are_shown_as_text(tmp_path: Path) -> None:
    class Odd(Computation):
        large: int = state(0)
        nothing: float = state(0.0)

        def process_record(self, record: Any, ctx: Any) -> None:
            self.large, self.nothing = 2**63, float("nan")

    pipeline = PipelineBuilder("odd")
    pipeline.read("values", memory([1]))
    pipeline.compute(Odd, inputs={"values": lambda value: (value, "<b>")}, outputs="out")
    pipeline.stream("out").write(memory_sink())
    Job(follower_of(pipeline.freeze(), DiskStore(tmp_path), lease_s=1.0)).wait(60)
    with UiServer([str(tmp_path)]) as server:
        path = "/api/pipeline/0/state?computation=Odd&key=%5B1,%22%3Cb%3E%22%5D"
        code, found, _ = ask(server, path)
        assert code == 200, found
        assert dict(found["state"]) == {"large": str(2**63), "nothing": "nan"}
        assert ask(server, "/api/pipeline/0")[1]["overview"]["state"] == "ended"


def test_a_request_needs_the_origin_the_token_and_json(
    server: UiServer, job: tuple[Job, Path]
) -> None:
    path, body = "/api/pipeline/0/ask", {"verb": "pause"}
    wrong = {
        "the origin": own(server, Origin="http://evil.example"),
        "the origin ''": own(server, Origin=None),
        "another site": own(server, **{"Sec-Fetch-Site": "cross-site"}),
        "the host": own(server, Host="evil.example"),
        "the host 'localhost:1'": own(server, Host="localhost:1"),
        "token": own(server, **{"X-Headrace-Token": "guessed"}),
        "token is missing": own(server, **{"X-Headrace-Token": None}),
        "not JSON": own(server, **{"Content-Type": "text/plain"}),
    }
    for why, headers in wrong.items():
        code, found, given = ask(server, path, body=body, headers=headers)
        assert code == 403 and why in found["error"], (why, found)
        assert not any(name.lower().startswith("access-control") for name in given)
    assert ask(server, path)[0] == 404  # GET changes nothing
    assert job[0].status().phase == "running"
    assert ask(server, path, body=b"[1]", headers=own(server))[0] == 400
    assert ask(server, path, body={"verb": "stop"}, headers=own(server))[0] == 409
    assert ask(server, path, body={"verb": "rescale", "slots": 3}, headers=own(server))[0] == 409
    code, found, _ = ask(server, "/api/pipeline/9/ask", body=body, headers=own(server))
    assert code == 404
    big = {"Content-Length": "999999999"}
    assert ask(server, path, body=b"{}", headers=own(server) | big)[0] in (400, 409)


def test_reading_needs_the_right_host_too(server: UiServer) -> None:
    for path in ("/", "/app.js", "/api/pipelines"):
        assert ask(server, path, headers={"Host": "rebound.example"})[0] == 403
        code, _, given = ask(server, path, headers={"Host": f"localhost:{server.port}"})
        assert code == 200
        assert "default-src 'none'" in given["Content-Security-Policy"]
        assert given["X-Frame-Options"] == "DENY" and given["Cache-Control"] == "no-store"
    for path in ("/../server.py", "/page/index.html", "/api/pipeline/x", "/api/pipeline/0/other"):
        assert ask(server, path)[0] == 404


def test_a_pipeline_is_paused_and_resumed_by_the_page(
    server: UiServer, job: tuple[Job, Path]
) -> None:
    code, found, _ = ask(server, "/api/pipeline/0/ask", body={"verb": "pause"}, headers=own(server))
    assert (code, found["verdict"]) == (200, "taken"), found
    code, found, _ = ask(
        server, "/api/pipeline/0/ask", body={"verb": "resume"}, headers=own(server)
    )
    assert (code, found["verdict"]) == (200, "taken"), found


def test_a_page_that_only_reads_refuses_requests(job: tuple[Job, Path]) -> None:
    with UiServer([str(job[1])], read_only=True) as server:
        code, found, _ = ask(
            server, "/api/pipeline/0/ask", body={"verb": "pause"}, headers=own(server)
        )
        assert code == 409 and "--read-only" in found["error"]


def test_a_checkpoint_that_is_away_is_told_and_the_others_stay(
    job: tuple[Job, Path], tmp_path: Path
) -> None:
    with UiServer([str(tmp_path / "nothing"), str(job[1])]) as server:
        code, found, _ = ask(server, "/api/pipelines")
    assert code == 200
    assert found["pipelines"][0]["state"] == "unreadable"
    assert "nothing" in found["pipelines"][0]["error"]
    assert found["pipelines"][1]["state"] == "running"


def finished(where: str | Path, values: list[str]) -> None:
    follower = follower_of(counting(values), DiskStore(where), lease_s=1.0, epoch_records=1)
    Job(follower).wait(60)


def test_a_checkpoint_that_is_deleted_and_made_again_is_read_anew(tmp_path: Path) -> None:
    where = tmp_path / "state"
    finished(where, ["a", "b"])
    with UiServer([str(where)]) as server:
        watcher = server.answers.watchers[0]
        watcher._clock = iter(range(1000)).__next__  # each look is a second after the last
        assert ask(server, "/api/pipeline/0")[1]["records_of"]["Count"] == 2
        shutil.rmtree(where)
        gone = ask(server, "/api/pipeline/0")[1]
        assert "there is no directory" in gone["error"]
        finished(where, ["a"])
        found = ask(server, "/api/pipeline/0")[1]
        assert found["error"] == "" and found["records_of"]["Count"] == 1


def test_a_leader_that_is_gone_has_no_rate(tmp_path: Path) -> None:
    finished(tmp_path, ["a"] * 20)
    told = read_status(DiskStore(tmp_path))
    assert told is not None and told.rates["values"] > 0
    with UiServer([str(tmp_path)]) as server:
        [listed] = ask(server, "/api/pipelines")[1]["pipelines"]
        assert (listed["state"], listed["rate"]) == ("ended", 0)
        status = ask(server, "/api/pipeline/0")[1]["status"]
        assert (status["phase"], status["rates"]) == ("ended", {})


def test_a_location_that_is_no_unicode_does_not_hide_the_others(tmp_path: Path) -> None:
    odd = os.fsdecode(bytes(tmp_path) + b"/odd\xff")
    finished(odd, ["a"])
    with UiServer([odd, str(tmp_path / "nothing")]) as server:
        code, found, _ = ask(server, "/api/pipelines")
        assert code == 200
        assert [each["state"] for each in found["pipelines"]] == ["ended", "unreadable"]
        assert found["pipelines"][0]["location"].endswith("odd\\udcff")
        assert ask(server, "/api/pipeline/0")[0] == 200


def test_odd_requests_and_peers_that_go_away_leave_no_traceback(
    server: UiServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    digits, deep = "9" * 5000, b"[" * 9_000
    assert ask(server, f"/api/pipeline/{digits}")[0] == 404
    assert ask(server, "/api/pipeline/0/ask", body=deep, headers=own(server))[0] == 400
    assert ask(server, f"/api/pipeline/{digits}/ask", body={}, headers=own(server))[0] == 400
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(b"GET http://[/ HTTP/1.1\r\nConnection: close\r\n" + host + b"\r\n")
        assert b" 404 " in peer.makefile("rb").readline()
    length = b"Content-Length: 500\r\n\r\nabc"
    for begun in (b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n" + host + length):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(begun)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.1)
    assert capfd.readouterr().err == "" and caplog.text == ""


def test_tokens_of_old_pages_are_forgotten() -> None:
    guard = Guard(1234)
    headers = {
        "Host": "127.0.0.1:1234",
        "Origin": "http://127.0.0.1:1234",
        "Content-Type": "application/json; charset=utf-8",
        "X-Headrace-Token": guard.new_token(),
    }
    assert guard.refuses_change(headers) == ""
    for _ in range(TOKENS_MAX):
        guard.new_token()
    assert "load the page again" in guard.refuses_change(headers)


def test_a_port_that_is_taken_is_told(server: UiServer) -> None:
    with pytest.raises(HeadraceError, match="--port"):
        UiServer([], server.port)


def test_the_page_asks_no_other_host_and_makes_no_html_of_data() -> None:
    place = Path(__file__).parents[3] / "src" / "headrace" / "observe" / "ui" / "page"
    for file in place.iterdir():
        text = file.read_text().replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, file.name
        for wrong in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert wrong not in text, (file.name, wrong)
