"""What a sink cannot encode is named: the computation, the stream, the sink and what to do."""

import pytest
from tests.unit.engine.support import driver_of, run

from headrace import Pipeline, SinkError, sinks, sources


def test_rows_that_a_sink_cannot_encode_name_the_stream_the_sink_and_the_next_step(tmp_path):
    p = Pipeline("mixed")
    values = [{"n": 1}, {"n": "two"}]
    p.read("in", sources.memory(values)).write(sinks.parquet(tmp_path / "out"))
    driver = driver_of(p.freeze())
    with pytest.raises(SinkError) as caught:
        run(driver)
    for word in ("'in'", str(tmp_path / "out"), "column 'n'", "had no effect", "schema="):
        assert word in str(caught.value)
    assert driver.ledger.epoch == 0
