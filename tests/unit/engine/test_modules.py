"""Functions given to the fluent interface travel with their modules."""

from __future__ import annotations

import json

from tests.unit.engine import support

from headrace import Pipeline, agg, sources
from headrace.engine.spark.shipping.modules import modules_of


def test_functions_travel_with_their_module_and_installed_ones_do_not():
    p = Pipeline("modules")
    s = p.read("in", sources.memory([]))
    s.map(json.dumps)
    s.flat_map(lambda v: v).key_by(support.__dict__.get).aggregate(
        n=agg.fold(0, lambda a, v: a, lambda a, b: a)
    )
    found = {n.name: set(modules_of(n)) for n in p.freeze().graph.nodes.values()}
    here = __name__
    assert here not in found["in.map"] and "json" not in found["in.map"]
    assert here in found["in.flat_map"]
    assert here in found["in.flat_map.aggregate"]
