"""What `checkpoint=` takes, and what it refuses before anything is made."""

from pathlib import Path

import pytest

from headrace import Checkpoint, InvalidPipeline, Pipeline, sinks, sources
from headrace.store.location import checkpoint_store


def pipeline():
    p = Pipeline("placed")
    p.read("in", sources.memory([1])).write(sinks.memory())
    return p


@pytest.mark.parametrize(
    "url", ["s3a://bucket/x", "ftp://host/x", "s3:/bucket/x", Path("gs://bucket/x"), "s3:///x"]
)
def test_a_wrong_url_is_refused_and_nothing_is_made(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidPipeline, match="write|There are"):
        pipeline().run(checkpoint=url)
    with pytest.raises(InvalidPipeline, match="write|There are"):
        pipeline().start(checkpoint=url)
    assert not list(tmp_path.iterdir())


def test_a_file_is_refused(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(InvalidPipeline, match="checkpoint= names a directory; .*state is a file"):
        pipeline().run(checkpoint=str(tmp_path / "state"))
    with pytest.raises(InvalidPipeline, match="names a directory"):
        Checkpoint(tmp_path / "state")


@pytest.mark.parametrize("wrong", ["", 17, None])
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(InvalidPipeline, match="names a directory"):
        checkpoint_store(wrong)


def test_paths_and_file_urls_are_taken(tmp_path):
    wanted = str(tmp_path / "a:b")
    for given in (wanted, tmp_path / "a:b", f"file://{wanted}"):
        assert checkpoint_store(given).location == wanted
    assert checkpoint_store("~/state").location == str(Path("~/state").expanduser())
    with pytest.raises(Exception, match="is not a checkpoint"):
        Checkpoint(tmp_path)


def test_both_spellings_of_until_are_taken():
    from headrace.cli import options

    for spelling in ("caught_up", "caught-up"):
        assert options.until.convert(spelling, None, None) == "caught_up"
    with pytest.raises(InvalidPipeline, match="write s3://"):
        pipeline().run(checkpoint="s3a://x/y", until="caught-up")


def test_sinks_and_sources_refuse_a_url_that_was_a_path_as_checkpoints_do():
    for name in (checkpoint_store, sinks.jsonl, sources.jsonl):
        with pytest.raises(InvalidPipeline, match="s3:/"):
            name(Path("s3://b/x"))
