"""URLs of state stores on servers: what they mean, and what messages never show."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidPipeline
from headrace.state.backends.hbase.schema import parse_hbase_url
from headrace.state.backends.redis.backend import RedisBackend, parse_redis_url


@pytest.mark.parametrize(
    ("url", "shown", "user", "password"),
    [
        ("redis://host", "redis://host:6379/0", None, None),
        ("redis://host:1/3", "redis://host:1/3", None, None),
        ("redis://:hush@host/2", "redis://host:6379/2", None, "hush"),
        ("redis://ada:h%40sh%2F%3A@host", "redis://host:6379/0", "ada", "h@sh/:"),
        ("rediss://ada:a:b@[::1]:7/0", "rediss://::1:7/0", "ada", "a:b"),
    ],
)
def test_a_url_of_redis_has_parts(
    url: str, shown: str, user: str | None, password: str | None
) -> None:
    found = parse_redis_url(url)
    assert (found.shown, found.user, found.password) == (shown, user, password)


def test_a_url_of_hbase_names_servers_and_a_table() -> None:
    found = parse_hbase_url("hbase://a:1,b,c:3/orders:state?timeout=500ms&durability=flush")
    assert found.servers == (("a", 1), ("b", 16000), ("c", 3))
    assert found.place == "orders:state" and found.timeout_s == 0.5


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://hush@:6379/0", "not of the form redis://host:port/database"),
        ("redis://:hush@a,b/0", "not of the form"),
        ("redis://:hush@host/orders", "is a number"),
        ("redis://:hush@host/0?colour=red", "no option 'colour'"),
        ("redis://:hush@host/0?timeout=5", "timeout='5'"),
        ("redis://:hush@host/0?timeout=0s", "timeout='0s'"),
        ("redis://:hush@host:port/0", "not of the form"),
        ("redis://:hush@ho st/0", "not of the form"),
    ],
)
def test_a_wrong_url_of_redis_is_explained_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        parse_redis_url(url)
    assert said in str(caught.value) and "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hbase://host", "name a table"),
        ("hbase://host/a:b:c", "name a table"),
        ("hbase://host/t?durability=none", "fsync or flush"),
        ("hbase://u:hush@host/t", "takes no password"),
    ],
)
def test_a_wrong_url_of_hbase_is_explained(url: str, said: str) -> None:
    with pytest.raises(InvalidPipeline, match=said) as caught:
        parse_hbase_url(url)
    assert "hush" not in str(caught.value)


def test_nothing_is_sent_before_the_first_request() -> None:
    backend = RedisBackend("redis://:hush@nowhere.invalid/0", "c1")
    assert "hush" not in repr(backend) and "hush" not in repr(backend.url)
