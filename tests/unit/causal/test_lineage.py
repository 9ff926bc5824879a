"""Identities: different causes never share one."""

from headrace.causal.lineage import (
    identity_part,
    origin_part,
    production_identity,
    source_identity,
    timer_identity,
)


def test_parts_cannot_run_into_each_other():
    found = {
        source_identity("a", "bc", 1),
        source_identity("ab", "c", 1),
        source_identity("ab", "c", 11),
        timer_identity("event", b"x", 1),
        timer_identity("wall", b"x", 1),
        production_identity("c", b"k", b"cause", 0),
        production_identity("ck", b"", b"cause", 0),
        production_identity("c", b"k", b"cause", 1),
    }
    assert len(found) == 8


def test_an_identity_lies_behind_its_origin():
    identity = source_identity("s", "p", 7)
    assert len(identity) == 16
    cell = b"origin" + identity
    assert (origin_part(cell), identity_part(cell)) == (b"origin", identity)
