"""URLs of stores: what they mean, their one canonical form, and what is refused."""

from pathlib import Path

import pytest

from headrace import InvalidPipeline
from headrace.store.location import checkpoint_store, filesystem_path, open_store
from headrace.store.url import parse_url

CANONICAL = {
    "s3://bucket": "s3://bucket",
    "s3://bucket/": "s3://bucket",
    "S3://bucket//a/b/": "s3://bucket/a/b",
    "s3://bucket/a?region=eu-west-1": "s3://bucket/a?region=eu-west-1",
    "s3://b.c-d_e/a b/é/x%2Fy": "s3://b.c-d_e/a b/é/x%2Fy",
    "s3://bucket/a?path_style=true&allow_http=false&timeout=15s": "s3://bucket/a",
    "s3://bucket/a?region=r&path_style=FALSE&endpoint=https://h:9/": (
        "s3://bucket/a?endpoint=https://h:9&path_style=false&region=r"
    ),
    "s3://b/a?allow_http=true&endpoint=http%3A%2F%2F127.0.0.1%3A9": (
        "s3://b/a?allow_http=true&endpoint=http://127.0.0.1:9"
    ),
    "gs://bucket/x?ca_file=/etc/a b.pem": "gs://bucket/x?ca_file=/etc/a%20b.pem",
    "az://container/x?account=acc": "az://container/x?account=acc",
    "hdfs://node:8020/user/me": "hdfs://node:8020/user/me",
    "hdfs://nameservice/x?replication=2": "hdfs://nameservice/x?replication=2",
    "hdfs://[::1]:8020/x": "hdfs://[::1]:8020/x",
}


@pytest.mark.parametrize("given", CANONICAL)
def test_a_url_has_one_canonical_form_which_is_its_own(given: str) -> None:
    found = parse_url(given)
    assert found.location == CANONICAL[given]
    assert parse_url(found.location) == found
    assert "?" not in found.where("a/b") and found.where("a/b").endswith("/a/b")


def test_a_part_of_a_store_keeps_its_options() -> None:
    found = parse_url("s3://b/a?region=r").below("x/y z")
    assert found.location == "s3://b/a/x/y z?region=r"
    assert parse_url(found.location) == found
    assert parse_url("s3://b").below("x").location == "s3://b/x"
    with pytest.raises(ValueError, match=r"'\?'"):
        found.below("a?b")


REFUSED = {
    "s3:///prefix": "names no bucket: write s3://bucket/prefix",
    "gs://": "names no bucket",
    "az:///x": r"write az://container/prefix\?account=NAME",
    "hdfs:///x": "names no name node",
    "s3://127.0.0.1:9000/bucket": r"the endpoint of a server is an option: \?endpoint=",
    "s3://b/../x": "is not a name in a store",
    "s3://b/a//b": "is not a name in a store",
    "s3a://b/x": "s3a:// is not a kind of store: write s3://",
    "abfss://c/x": "write az://",
    "gcs://c/x": "write gs://",
    "ftp://host/x": "ftp:// is not a kind of store. There are s3://, gs://, az://, hdfs://",
    "s3://b/x?colour=red": "s3:// has no option 'colour'; its options are allow_http, ca_file",
    "gs://b/x?region=eu": "gs:// has no option 'region'",
    "s3://b/x?region=a&region=b": "is given twice",
    "s3://b/x?region": "options are written",
    "s3://b/x?path_style=maybe": "path_style is true or false",
    "s3://b/x?timeout=soon": "timeout= is a time such as 15s",
    "s3://b/x?timeout=0s": "longer than nothing",
    "s3://b/x?endpoint=localhost:9000": "endpoint= is a URL such as https://host:port",
    "s3://b/x?endpoint=http://h:1": "plain http.*allow_http=true",
    "hdfs://h:1/x?replication=0": "a number from 1 on",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_no_store_can_have_is_refused_with_a_sentence(given: str) -> None:
    with pytest.raises(InvalidPipeline, match=REFUSED[given]):
        parse_url(given)


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "given",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"s3://{SECRET}@bucket/x",
        f"s3://b/x?secret_access_key={SECRET}",
        f"s3://b/x?AWS_ACCESS_KEY_ID={SECRET}",
        f"s3://b/x?session_token={SECRET}",
        f"s3://b/x?region=r&password={SECRET}",
        f"s3://b/x?endpoint=https://me:{SECRET}@host",
        f"s3://b/x?endpoint=https://host/?token={SECRET}",
        f"gs://b/x?service_account_key={SECRET}",
        f"az://c/x?sig={SECRET}",
        f"az://c/x?sas_token={SECRET}",
        f"az://c:{SECRET}@account/x",
        f"hdfs://me:{SECRET}@node:8020/x",
    ],
)
def test_a_credential_is_refused_and_never_repeated(given: str) -> None:
    for take in (parse_url, checkpoint_store, open_store):
        with pytest.raises(InvalidPipeline) as caught:
            take(given)
        assert "redentials belong into" in str(caught.value)
        assert SECRET not in str(caught.value)


def test_a_query_that_is_not_understood_is_never_repeated() -> None:
    for query in (f"colour={SECRET}", f"region={SECRET}&region=x", f"path_style={SECRET}"):
        with pytest.raises(InvalidPipeline) as caught:
            parse_url(f"s3://b/x?{query}")
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("given", [Path("s3://b/x"), "gs:/b/x", "hdfs:/host/x"])
def test_a_url_that_was_a_path_has_lost_a_slash(given: object) -> None:
    with pytest.raises(InvalidPipeline, match="one slash too few.*a Path removes a slash"):
        checkpoint_store(given)


def test_a_url_inside_of_a_path_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="neither a path nor a URL"):
        checkpoint_store("out/hdfs://b")


def test_paths_stay_paths() -> None:
    for path in ("a:b", "/a/b", "C:/x", "./s3", "s3", "1:/x"):
        assert filesystem_path(path) == path
    assert filesystem_path("file:///a/b") == "/a/b"
    assert filesystem_path("file://a/b") == "a/b"
