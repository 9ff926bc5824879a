"""A store is asked before it is believed: each broken promise is found, and named."""

import threading
import time

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.errors import StoreError
from headrace.store.asking import ask, check, require_exact_puts
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore


class Overwriting(MemoryStore):
    """Ignores the condition."""

    def put_if_absent(self, name, data):
        self.write(name, data)
        return True


class Racing(MemoryStore):
    """Honours the condition one after the other, but not in a race."""

    def put_if_absent(self, name, data):
        if name in self.files:
            return False
        time.sleep(0.01)
        self.write(name, data)
        return True


class Deaf(MemoryStore):
    """Lets nobody win."""

    def put_if_absent(self, name, data):
        super().put_if_absent(name, data)
        return False


class Stale(MemoryStore):
    """Lists do not show what was just put."""

    def list(self, directory):
        return []


class Mixed(MemoryStore):
    """Reads return what another writer has put."""

    def read(self, name):
        super().read(name)
        return b"other"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Overwriting, "16 of 16 writers"),
        (Racing, "of 16 writers"),
        (Deaf, "0 of 16 writers"),
        (Stale, "a list did not show"),
        (Mixed, "a read did not return"),
    ],
)
def test_a_store_that_breaks_a_promise_is_refused(kind, said):
    store = kind()
    with pytest.raises(StoreError, match=f"cannot hold a checkpoint: .*{said}"):
        ask(store)
    assert store.files == {}, "the name is deleted"
    found = check(store)
    assert not found.can_hold_a_checkpoint and said in found.reason


def test_disks_and_memory_keep_their_promises(tmp_path):
    ask(MemoryStore())
    found = check(DiskStore(tmp_path), requests=3)
    assert found.can_hold_a_checkpoint and found.put_ms_p50 > 0
    assert list(tmp_path.iterdir()) == []


def test_a_run_asks_once_and_only_stores_that_must_be_asked():
    class Counting(MemoryStore):
        puts = 0
        lock = threading.Lock()

        def put_if_absent(self, name, data):
            with self.lock:
                Counting.puts += 1
            return super().put_if_absent(name, data)

    store = Counting()
    require_exact_puts(store)
    assert Counting.puts == 0
    store.must_be_asked = True
    require_exact_puts(store)
    asked = Counting.puts
    assert asked > 16
    require_exact_puts(store)
    assert Counting.puts == asked


def test_the_command_checks_a_path(tmp_path):
    done = CliRunner().invoke(cli, ["store", "check", str(tmp_path), "--requests", "2"])
    assert done.exit_code == 0, done.output
    assert f"{tmp_path} can hold a checkpoint" in done.output and "put " in done.output
    done = CliRunner().invoke(cli, ["store", "check", str(tmp_path), "--json"])
    assert '"can_hold_a_checkpoint": true' in done.output
    done = CliRunner().invoke(cli, ["store", "check", str(tmp_path / "new")])
    assert done.exit_code == 0 and not (tmp_path / "new").exists()


def test_the_command_refuses_a_wrong_url():
    done = CliRunner().invoke(cli, ["store", "check", "s3a://b/x"])
    assert done.exit_code == 1 and "write s3://" in done.output
    done = CliRunner().invoke(cli, ["store", "check", "/proc/none/x", "--json"])
    assert done.exit_code == 1 and '"can_hold_a_checkpoint": false' in done.output
