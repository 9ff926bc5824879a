"""A causal service is one class and one line: the rest of the engine learns its name from there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, UserCodeError
from headrace.causal import catalog, outside
from headrace.causal.questions import Asker, Question, digest
from headrace.model.context import Services, service_names
from headrace.model.services import CALL, OutsideService
from headrace.testing import Harness

ASKED: list[str] = []


class _Lookup(Question):
    def __init__(self, name: str) -> None:
        self.what, self.request, self.options = "dns", digest(name.encode()), CALL
        self.repeats, self.sends_key, self._name = False, False, name

    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        one.begin()
        ASKED.append(self._name)
        return f"address of {self._name}".encode()


class DnsService:
    def __init__(self, context: Asker) -> None:
        self._context = context

    def lookup(self, name: str) -> str:
        return self._context.ask(_Lookup(name)).decode()


@pytest.fixture
def dns(monkeypatch):
    """`ctx.dns`: its declaration and its line in the catalog."""
    ASKED.clear()
    declared = OutsideService()
    monkeypatch.setattr(OutsideService, "names", set(OutsideService.names))
    declared.__set_name__(Services, "dns")
    monkeypatch.setattr(Services, "dns", declared, raising=False)
    monkeypatch.setitem(catalog.SERVICES, "dns", DnsService)


def test_the_catalog_has_what_contexts_declare_and_nothing_else():
    assert set(catalog.SERVICES) == service_names()


def test_a_new_service_is_asked_once_although_the_task_dies(dns):
    class Resolve(Computation):
        def process_record(self, record, ctx):
            ctx.produce(ctx.dns.lookup(f"host-{record.value['t']}"))

    with Harness(one(Resolve)) as h:
        h.send("in", at(1), at(2))
        h.crash(at="before-commit-write")
        h.end()
        assert h.read("out") == ["address of host-1", "address of host-2"]
    assert ASKED == ["host-1", "host-2"]


def test_a_new_service_is_refused_where_nothing_was_made_ready_for_it(dns):
    class Hidden(Computation):
        def process_record(self, record, ctx):
            getattr(ctx, "d" + "ns").lookup("x")

    with Harness(one(Hidden)) as h, pytest.raises(UserCodeError, match=r"uses ctx\.dns"):
        h.send("in", at(1))
        h.end()
