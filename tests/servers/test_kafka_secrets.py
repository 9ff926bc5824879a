"""Passwords for a broker that wants them: they work, and nothing shows them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.servers.kafka import consume, new_topic, produce, thorough
from tests.unit.engine.support import driver_of

from headrace import Pipeline, kafka_client, sinks, sources
from headrace.bench.servers.kafka_server import KafkaServer, kafka_server
from headrace.bench.servers.processes import CannotHave
from headrace.cli.main import cli
from headrace.errors import HeadraceError
from headrace.observe.ui.answers import Answers, plain
from headrace.plan.decisions.next_step import Run
from headrace.sources.kafka import reading
from headrace.store.disk import DiskStore

pytestmark = [thorough, pytest.mark.slow]

SECRET = "hunter2-very-secret"
WRONG = "hunter3-very-wrong"


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    try:
        made = kafka_server(users={"reader": SECRET})
    except CannotHave as error:
        pytest.skip(f"kafka: {error}")
    yield made
    made.process.kill()


def options(password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": password,
    }


def counted(server: KafkaServer, topics: tuple[str, str], password: str) -> Pipeline:
    p = Pipeline("secret")
    how: dict[str, Any] = {"servers": server.secured, "options": options(password)}
    p.read("in", sources.kafka(topics[0], stop="latest", **how))
    p.stream("in").write(sinks.kafka(topics[1], **how))
    return p


def test_a_password_opens_the_topics_and_is_shown_nowhere(
    server: KafkaServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(kafka_client, "ANSWER_S", 4.0)
    monkeypatch.setattr(reading, "QUIET_S", 2.0)
    topics = new_topic(server), new_topic(server)
    produce(server, topics[0], [{"n": n} for n in range(10)])
    told: list[str] = []
    driver = driver_of(
        counted(server, topics, SECRET).freeze(),
        DiskStore(tmp_path / "state"),
        until="end",
        on_epoch=lambda progress: told.append(repr(progress)),
        on_notice=lambda notice: told.append(repr(notice)),
    )
    while isinstance(driver.step(), Run):
        pass
    driver.close()
    assert len(consume(server, topics[1])) == 10

    with pytest.raises(HeadraceError) as refused:
        driver_of(counted(server, topics, WRONG).freeze(), DiskStore(tmp_path / "wrong"))
    told.append(str(refused.value))
    assert server.secured in str(refused.value)
    assert "Invalid username or password" in str(refused.value)

    state = str(tmp_path / "state")
    for command in (["status", state], ["status", state, "--json"], ["ps", state]):
        shown = CliRunner().invoke(cli, command)
        assert shown.exit_code == 0, shown.output
        told.append(shown.output)
    page = Answers([state])
    (listed,) = page.pipelines()["pipelines"]
    assert (listed["pipeline"], listed["records"]) == ("secret", 10)
    told += [json.dumps(plain(listed)), json.dumps(plain(page.pipeline(0)))]
    said = capfd.readouterr()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for text in (*told, caplog.text, said.out, said.err, repr(sys.exc_info())):
        assert SECRET not in text and WRONG not in text
    for data in files:
        assert SECRET.encode() not in data and WRONG.encode() not in data
