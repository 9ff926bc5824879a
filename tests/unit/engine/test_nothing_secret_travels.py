"""What goes to workers: a location, and neither a client of a store nor a credential."""

from __future__ import annotations

import pickletools
from typing import Any

import pytest
from pyspark import cloudpickle

from headrace import Computation, Pipeline, sinks, sources, state
from headrace.engine.spark.shipping.shipment import pickled
from headrace.engine.spark.tasks import LevelFunction, Shipment
from headrace.store.location import open_store
from headrace.store.objects import ObjectStore

pytest.importorskip("obstore")

SECRET, KEY, TOKEN = "geheim-4711", "AKIAEXAMPLE4711", "zeichen-4711"
OPTIONS = "?endpoint=http://127.0.0.1:9&region=us-east-1&allow_http=true"


class Count(Computation):
    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n})


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in this process's environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)


def opened(url: str) -> ObjectStore:
    """A store whose client has been made: it holds the credentials."""
    store = open_store(url)
    assert isinstance(store, ObjectStore)
    store._requests.client()
    return store


def test_neither_a_client_nor_a_credential_is_pickled(chain: None) -> None:
    p = Pipeline("counts")
    p.read("in", sources.jsonl(f"s3://bucket/in/*.jsonl{OPTIONS}", timestamp="t"))
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(f"s3://bucket/out{OPTIONS}"))
    topology = p.freeze()
    for outlet in topology.graph.outlets.values():
        outlet.sink.own_store()  # as the driver has done when it pickles
    store = opened(f"s3://bucket/state{OPTIONS}")
    shipment = Shipment(pickled(topology), "digest", store.location, near_bytes=10**9)
    sent = cloudpickle.dumps(LevelFunction(shipment, 1))
    for data in (sent, shipment.pipeline, cloudpickle.dumps(store), store.location.encode()):
        for secret in (SECRET, KEY, TOKEN):
            assert secret.encode() not in data
    imported = {
        argument
        for data in (sent, shipment.pipeline)
        for opcode, argument, _ in pickletools.genops(data)
        if isinstance(argument, str)
    }
    assert not [name for name in imported if name.startswith("obstore")]
    assert b"endpoint=http://127.0.0.1:9" in sent
