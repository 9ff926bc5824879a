"""What an object store promises when its server does not answer, or answers wrongly.

A proxy stands between the store and a real server, and loses, delays and invents answers.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.servers.proxy import Proxy
from tests.servers.stores import chosen, server_of
from tests.spark.pipelines import exchange, make_trades, write_trades
from tests.spark.support import run_local

from headrace import Checkpoint, replay
from headrace.cli.main import cli
from headrace.errors import InvalidPipeline, StoreError
from headrace.store import objects
from headrace.store.asking import ask, check
from headrace.store.counts import PATH
from headrace.store.location import open_store
from headrace.store.objects import ObjectStore

S3 = [kind for kind in chosen() if kind in ("ministack", "versitygw")]
pytestmark = pytest.mark.skipif(not S3, reason="no S3 server was chosen")

FAULTS = ["lost", "cut", "500", "503", "409", "429", "lost 500", "lost 503", "lost 409", "late"]


@pytest.fixture(params=S3)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(kind: str) -> Iterator[Proxy]:
    found = Proxy(server_of(kind).process.port)
    yield found
    found.close()


@pytest.fixture
def store(proxy: Proxy) -> ObjectStore:
    return opened(proxy)


def opened(proxy: Proxy, **options: str) -> ObjectStore:
    query = {
        "endpoint": f"http://127.0.0.1:{proxy.port}",
        "region": "us-east-1",
        "allow_http": "true",
        "timeout": "1s",
        **options,
    }
    text = "&".join(f"{name}={value}" for name, value in query.items())
    found = open_store(f"s3://tests/t-{os.urandom(6).hex()}?{text}")
    assert isinstance(found, ObjectStore)
    return found


def first_puts(proxy: Proxy, *fates: str) -> None:
    """The first puts of objects meet these fates; everything else passes."""
    left = list(fates)

    def fault(method: str, path: str, number: int) -> str:
        return left.pop(0) if method == "PUT" and left else "pass"

    proxy.fault = fault


# Conditional puts -----------------------------------------------------------


@pytest.mark.parametrize("fate", FAULTS)
def test_a_put_whose_answer_is_lost_or_wrong_is_known_to_be_ones_own(
    proxy: Proxy, store: ObjectStore, fate: str
) -> None:
    first_puts(proxy, fate)
    assert store.put_if_absent("d/a", b"1")
    assert store.read("d/a") == b"1"
    assert not store.put_if_absent("d/a", b"1"), "the same bytes are another put"
    time.sleep(0.5 if fate == "late" else 0)
    assert store.read("d/a") == b"1"


@pytest.mark.parametrize("fate", FAULTS)
def test_a_name_that_another_has_taken_is_never_believed_to_be_ones_own(
    proxy: Proxy, store: ObjectStore, fate: str
) -> None:
    assert store.put_if_absent("d/a", b"1")
    for data in (b"1", b"2"):
        first_puts(proxy, fate)
        assert not store.put_if_absent("d/a", data)
    assert store.read("d/a") == b"1"


def test_a_conflict_that_created_nothing_is_no_answer(proxy: Proxy, store: ObjectStore) -> None:
    first_puts(proxy, "409", "409", "409")
    assert store.put_if_absent("a", b"1")
    first_puts(proxy, *["409"] * 20)
    with pytest.raises(StoreError, match="cannot write .*/b: the name is taken and free by turns"):
        store.put_if_absent("b", b"1")


def test_a_server_that_hangs_is_left_in_bounded_time_and_asked(
    proxy: Proxy, store: ObjectStore
) -> None:
    first_puts(proxy, "hang")
    began = time.monotonic()
    assert store.put_if_absent("a", b"1"), "it had landed"
    assert time.monotonic() - began < 8


def test_an_outcome_that_stays_unknown_is_an_error_in_bounded_time(
    proxy: Proxy, store: ObjectStore
) -> None:
    proxy.fault = lambda method, path, number: "lost"
    with pytest.raises(StoreError, match="whether it was written is not known"):
        store.put_if_absent("a", b"1")
    proxy.fault = lambda method, path, number: "pass"
    assert store.read("a") == b"1"


def test_where_a_server_drops_the_metadata_the_bytes_tell(
    kind: str, proxy: Proxy, store: ObjectStore
) -> None:
    if kind != "ministack":
        pytest.skip("a real server refuses a request whose signed headers were removed")
    proxy.keeps_metadata = False
    assert store.put_if_absent("a", b"1")
    assert not store.put_if_absent("a", b"1"), "nothing was in doubt"
    first_puts(proxy, "lost")
    assert store.put_if_absent("b", b"2")
    first_puts(proxy, "cut")
    assert not store.put_if_absent("a", b"3")


@pytest.mark.parametrize("seed", range(3))
def test_of_racing_writers_under_faults_at_most_one_believes_to_have_won(
    proxy: Proxy, seed: int
) -> None:
    dice = random.Random(seed)
    proxy.fault = lambda method, path, number: (
        dice.choice(FAULTS) if method in ("PUT", "HEAD") and dice.random() < 0.4 else "pass"
    )
    store = opened(proxy)
    writers = 6

    def put(name: str, number: int) -> str:
        try:
            return "won" if store.put_if_absent(name, b"%d" % number) else "lost"
        except StoreError:
            return "unknown"

    unknown = 0
    with ThreadPoolExecutor(writers) as pool:
        for turn in range(8):
            name = f"d/{turn}"
            said = list(pool.map(put, [name] * writers, range(writers)))
            proxy_fault, proxy.fault = proxy.fault, lambda method, path, number: "pass"
            time.sleep(0.4)
            data = store.read(name)
            proxy.fault = proxy_fault
            assert said.count("won") <= 1
            if "won" in said:
                assert data == b"%d" % said.index("won")
            else:
                assert said[int(data)] == "unknown"
            unknown += said.count("unknown")
    assert unknown < 24, "most outcomes are found out"


# Other requests -------------------------------------------------------------


@pytest.mark.parametrize("fate", ["500", "503", "429", "cut", "lost"])
def test_reads_lists_writes_copies_and_deletes_are_tried_again(
    proxy: Proxy, store: ObjectStore, fate: str
) -> None:
    def once(*acts: object) -> None:
        proxy.fault = lambda method, path, number, left=[fate]: left.pop() if left else "pass"

    once()
    store.write("d/a", b"1")
    once()
    assert store.read("d/a") == b"1"
    once()
    assert store.list("d") == ["a"]
    once()
    store.copy("d/a", "d/b")
    once()
    store.delete("d/a")
    once()
    assert store.list("d") == ["b"]
    counted = store.requests()[PATH]
    assert (counted.puts, counted.gets, counted.deletes) == (4, 2, 2), "retries are billed too"


def test_a_server_that_stays_busy_is_an_error_that_says_so(
    proxy: Proxy, store: ObjectStore
) -> None:
    proxy.fault = lambda method, path, number: "503"
    for act in (
        lambda: store.write("a", b""),
        lambda: store.read("a"),
        lambda: store.map("a"),
        lambda: store.list(""),
        lambda: store.delete("a"),
        lambda: store.copy("a", "b"),
        lambda: store.put_if_absent("a", b""),
        lambda: store.is_present(),
    ):
        with pytest.raises(StoreError, match=r"cannot .* s3://tests/t-.*busy \(503\)"):
            act()


def test_a_large_file_is_written_in_parts_and_seen_when_it_is_complete(
    proxy: Proxy, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PARTS_FROM_BYTES", 1 << 20)
    monkeypatch.setattr(objects, "PART_BYTES", 5 << 20)
    data = os.urandom(12 << 20)
    store.write("d/a", data)
    assert store.read("d/a") == store.map("d/a").to_pybytes() == data
    assert sum("partNumber" in path for _, path, _ in proxy.seen) == 3
    proxy.fault = lambda method, path, number: "cut" if "partNumber=2" in path else "pass"
    with pytest.raises(StoreError):
        store.write("d/b", data)
    assert store.list("d") == ["a"]


def test_a_long_walk_goes_on_where_a_request_has_failed(
    proxy: Proxy, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", 3)
    names = [f"d/{number // 4}/{number:02d}" for number in range(20)]
    for name in names:
        store.write(name, b"")
    dice = random.Random(1)
    proxy.fault = lambda method, path, number: "503" if dice.random() < 0.2 else "pass"
    for after in ("", "d/2/09", "z"):
        found = [info.name for info in store.walk("d", after=after) if info is not None]
        assert found == [name for name in names if name > after]


# Errors ---------------------------------------------------------------------

ERROR = "<Error><Code>{}</Code><Message>{}</Message><StringToSign>AWS4-HMAC</StringToSign></Error>"
ANSWERS = {
    "403 " + ERROR.format("InvalidAccessKeyId", "no"): "does not accept the credentials",
    "403 " + ERROR.format("RequestTimeTooSkewed", "no"): "the clock of this machine differs",
    "403 " + ERROR.format("AccessDenied", "no"): "permission denied",
    "404 " + ERROR.format("NoSuchBucket", "no"): "there is no bucket 'tests'",
    "400 " + ERROR.format("AuthorizationHeaderMalformed", "wrong; expecting 'eu-west-1'"): (
        "not in region us-east-1: add the option region=eu-west-1"
    ),
}


@pytest.mark.parametrize("fate", ANSWERS)
def test_a_refusal_is_one_sentence_at_once_and_shows_no_secret(
    proxy: Proxy, store: ObjectStore, fate: str
) -> None:
    proxy.fault = lambda method, path, number: fate if method != "HEAD" else fate.split()[0]
    for act in (
        lambda: ask(store),
        lambda: store.put_if_absent("a", b""),
        lambda: store.write("a", b""),
        lambda: store.read("a"),
        lambda: store.list(""),
    ):
        before = len(proxy.seen)
        with pytest.raises(StoreError, match=ANSWERS[fate]) as caught:
            act()
        assert len(proxy.seen) - before == 1, "it does not help to try again"
        assert caught.value.__cause__ is None
        assert "AWS4" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_bucket_is_recognised(proxy: Proxy) -> None:
    store = open_store(
        f"s3://no-such-bucket-here/x?endpoint=http://127.0.0.1:{proxy.port}"
        "&region=us-east-1&allow_http=true"
    )
    assert not store.is_present()
    for act in (lambda: store.put_if_absent("a", b""), lambda: store.write("a", b"")):
        with pytest.raises(StoreError, match="there is no bucket 'no-such-bucket-here'"):
            act()
    with pytest.raises(StoreError, match="there is no bucket"):
        store.list("")


def test_a_server_that_cannot_be_reached_is_named(proxy: Proxy) -> None:
    store = opened(proxy, endpoint="http://127.0.0.1:1", timeout="2s")
    with pytest.raises(StoreError, match=r"http://127.0.0.1:1 cannot be reached"):
        store.read("a")
    with pytest.raises(StoreError, match=r"http://127.0.0.1:1 cannot be reached"):
        store.put_if_absent("a", b"")


def test_tls_is_checked_unless_its_authority_is_named_or_it_is_switched_off(
    tmp_path: Path,
) -> None:
    authority, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "basicConstraints=critical,CA:FALSE",
         "-keyout", str(key), "-out", str(authority)],
        capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority, key)
    proxy = Proxy(server_of(S3[0]).process.port, tls=tls)
    endpoint = f"https://127.0.0.1:{proxy.port}"
    plain = opened(proxy, endpoint=endpoint, allow_http="false")
    with pytest.raises(StoreError, match="TLS certificate is not trusted: .*ca_file="):
        plain.read("a")
    for how in ({"ca_file": str(authority)}, {"insecure": "true"}):
        store = opened(proxy, endpoint=endpoint, allow_http="false", **how)
        assert store.put_if_absent("a", b"1") and store.read("a") == b"1"
    with pytest.raises(StoreError, match="the file /none.pem, which ca_file= names"):
        opened(proxy, endpoint=endpoint, ca_file="/none.pem").read("a")
    proxy.close()


def test_no_key_is_in_the_checkpoint_its_messages_or_what_is_sent_to_workers(
    kind: str,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if kind != "ministack":
        pytest.skip("other servers know one key only")
    secrets = {"AWS_ACCESS_KEY_ID": "AKIA7SECRETKEYID", "AWS_SECRET_ACCESS_KEY": "zUpErSeCrEt12345"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    store = opened(proxy)
    trades = make_trades(1, count=80)
    source = write_trades(trades, tmp_path / "in")
    dice = random.Random(2)
    proxy.fault = lambda method, path, number: "503" if dice.random() < 0.05 else "pass"
    run_local(exchange(source, tmp_path / "out"), store, slots=2, epoch_records=25, give_up_s=None)
    proxy.fault = lambda method, path, number: "403 " + ERROR.format("SignatureDoesNotMatch", "x")
    with pytest.raises(StoreError) as caught:
        store.read("IDENTITY")
    proxy.fault = lambda method, path, number: "pass"
    names = [info.name for info in store.walk() if info is not None]
    assert "IDENTITY" in names
    shown = [store.read(name) for name in names] + [name.encode() for name in names]
    shown += [pickle.dumps(store), repr(store).encode(), caplog.text.encode()]
    shown += [str(caught.value).encode(), store.location.encode()]
    shown += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for value in secrets.values():
        assert not any(value.encode() in each for each in shown)


def test_a_checkpoint_on_s3_is_shown_replayed_and_changed_by_its_url(
    store: ObjectStore, tmp_path: Path
) -> None:
    source = write_trades(make_trades(1, count=80), tmp_path / "in")
    pipeline = exchange(source, tmp_path / "out")
    run_local(pipeline, store, slots=2, epoch_records=25)
    url = store.location
    last = Checkpoint(url).epoch
    assert replay(pipeline, checkpoint=url, epoch=last - 1).equal

    def said(*words: str) -> str:
        done = CliRunner().invoke(cli, ["state", *words])
        assert done.exit_code == 0, done.output
        return str(done.output)

    assert f"exchange: epoch {last}" in said("list", url)
    row = json.loads(said("scan", url, "Book", "--limit", "1").splitlines()[0])
    assert json.loads(said("get", url, "Book", row["key"])) == {"total": row["total"]}
    said("drop", url, "Book", "--key", row["key"], "--yes")
    assert Checkpoint(url).get("Book", row["key"]) is None
    missing = CliRunner().invoke(cli, ["state", "list", f"{store.below('none').location}"])
    assert missing.exit_code == 1 and "is not a checkpoint" in missing.output


def test_wrong_keys_are_refused_by_a_server_that_checks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "versitygw" not in S3:
        pytest.skip("the small server does not check keys")
    url = server_of("versitygw").new_url()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    with pytest.raises(StoreError, match="does not accept the credentials") as caught:
        ask(open_store(url))
    assert "wrong-and-secret" not in str(caught.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidPipeline, match=r"pip install 'headrace\[objects\]'"):
        open_store("s3://b/x")
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(InvalidPipeline, match=r"pip install 'headrace\[hdfs\]'"):
        open_store("hdfs://h:1/x")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hdfs://127.0.0.1:1/x", "the name node 127.0.0.1:1 cannot be reached: Connection refused"),
        ("hdfs://nameservice/x", "nameservice is not known: .*HADOOP_CONF_DIR"),
    ],
)
def test_a_name_node_that_cannot_be_reached_is_named_in_bounded_time(url: str, said: str) -> None:
    began = time.monotonic()
    for act in (lambda s: s.read("a"), lambda s: s.put_if_absent("a", b""), lambda s: s.list("")):
        with pytest.raises(StoreError, match=said):
            act(open_store(url))
    assert time.monotonic() - began < 60


def test_a_name_node_that_hangs_is_left_in_bounded_time() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        store = open_store(f"hdfs://127.0.0.1:{deaf.getsockname()[1]}/x?timeout=1s")
        for act in (lambda: store.read("a"), lambda: store.put_if_absent("a", b"")):
            with pytest.raises(StoreError, match="did not answer in time"):
                act()


# Asking ---------------------------------------------------------------------


def test_a_server_that_ignores_the_condition_is_refused(
    kind: str, proxy: Proxy, store: ObjectStore
) -> None:
    proxy.drops_condition = True
    if kind == "versitygw":
        pytest.skip("a real server may sign the condition")
    with pytest.raises(StoreError, match=r"16 of 16 writers .* succeeded, where exactly one may"):
        ask(store)
    assert not check(store).can_hold_a_checkpoint
    assert store.list("") == []


def test_a_good_server_is_measured_and_left_clean(store: ObjectStore) -> None:
    found = check(store, requests=3)
    assert found.can_hold_a_checkpoint and found.reason is None
    assert found.put_ms_p50 and found.get_ms_p50 and found.list_ms_p50
    assert store.list("") == []


# Forks ----------------------------------------------------------------------

FORKS = """
import os, sys
from headrace.errors import HeadraceError, StoreError
from headrace.store.location import open_store
url = sys.argv[1]
store = open_store(url)
if sys.argv[2] == "used":
    assert store.list("") == []
child = os.fork()
if child == 0:
    said = []
    for one in (store, open_store(url)):
        try:
            one.put_if_absent("a", b"1")
            said.append("worked")
        except HeadraceError as error:
            assert not isinstance(error, StoreError), "it is no outage"
            assert "forked from one that had already used a store at s3://" in str(error)
            said.append("refused")
    print(*said, flush=True)
    os._exit(0)
os.waitpid(child, 0)
assert store.list("") == ([] if sys.argv[2] == "used" else ["a"])
"""


@pytest.mark.parametrize(("use", "said"), [("used", "refused refused"), ("new", "worked worked")])
def test_a_use_before_a_fork_is_an_error_in_the_child_and_not_a_hang(
    use: str, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    found = subprocess.run(
        [sys.executable, str(script), server_of(S3[0]).new_url(), use],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stdout.strip()) == (0, said), found.stderr
