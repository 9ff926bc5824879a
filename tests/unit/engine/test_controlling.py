"""Requests to a driver that leads: heard, decided once, in the log before any effect, answered."""

import json
import threading
import time

import pytest
from tests.unit.engine.support import Crash, counting, die, driver_of, follower_of, run
from tests.unit.systems import Hurried, limited

from headrace import failpoints
from headrace.control.queue import RequestQueue
from headrace.control.request import encode_request
from headrace.engine.commands import Remote
from headrace.engine.driver.follower import PipelineStopped
from headrace.engine.history.recovery import recover
from headrace.engine.job import Job
from headrace.engine.leading.lease import HELD, Lease, write_lease
from headrace.errors import IncompatibleState, InvalidPipeline, Unheard
from headrace.log.epochlog import EpochLog
from headrace.log.identity import read_identity
from headrace.plan.control import ASKED, STOPPED, ControlRequest
from headrace.plan.decisions.next_step import Finish, Run, Wait
from headrace.sources import generate
from headrace.store.memory import MemoryStore

VALUES = [i % 7 for i in range(60)]


@pytest.fixture(autouse=True)
def _disarmed():
    yield
    failpoints.disarm()


def put(store, verb="pause", position=None, nonce="", **fields):
    queue = RequestQueue(store)
    at = position or queue.last() + 1
    nonce = nonce or f"n{at}"
    values = {"checkpoint": read_identity(store).id, "command": nonce, **fields}
    queue.put(at, encode_request(ControlRequest(nonce=nonce, verb=verb, **values)))
    return at


def answers(store):
    """Name -> answer, as JSON."""
    found = {}
    for name in store.list("control"):
        if "." in name:
            text = store.read(f"control/{name}").split(b"\n", 1)[1]
            found[name.lstrip("0")] = json.loads(text)
    return found


def kinds(store):
    log = EpochLog(store)
    return [entry.kind for _, entry in reversed(list(log.backwards()))]


def ledger_of(store):
    return recover(EpochLog(store), 1).ledger


def endless():
    return counting(generate(lambda n, random: n % 7))


# The leader's side --------------------------------------------------------


def test_a_request_that_comes_while_a_job_runs_rides_in_the_commit():
    store = MemoryStore()
    driver = driver_of(counting(VALUES), store)
    run(driver, 2)
    put(store)
    before = len(kinds(store))
    driver.step()
    assert kinds(store)[before:] == ["commit"]
    assert driver.ledger.control.paused and driver.ledger.open_plan is None
    assert answers(store) == {}, "no answer before the entry is in the log, and the step is over"
    assert driver.step() == Wait(None)
    assert [a["verdict"] for a in answers(store).values()] == ["taken", "done"]
    assert ledger_of(store).control == driver.ledger.control


def test_a_paused_pipeline_runs_no_epoch_until_it_is_resumed():
    store = MemoryStore(limited(listen_every_s=0.0))
    driver = driver_of(counting(VALUES), store)
    run(driver, 1)
    put(store)
    driver.step()
    epoch = driver.ledger.epoch
    for _ in range(3):
        assert isinstance(driver.step(), Wait)
    assert driver.ledger.epoch == epoch and driver.ledger.open_plan is None
    put(store, "resume")
    assert driver.step() == Wait(0)
    assert isinstance(driver.step(), Run)


def test_a_takeover_stays_paused():
    store = MemoryStore()
    driver = driver_of(counting(VALUES), store)
    run(driver, 1)
    put(store)
    driver.step()
    again = driver_of(counting(VALUES), store)
    assert again.ledger.control.paused
    assert isinstance(again.step(), Wait)


def test_a_damaged_request_does_not_block_the_queue():
    store = MemoryStore(limited(listen_every_s=0.0))
    driver = driver_of(counting(VALUES), store)
    run(driver)
    store.write(f"control/{1:020d}", b"\x80\x04 a pickle, perhaps")
    put(store, "dance", 2)
    put(store, "pause", 3, checkpoint="another")
    put(store, "pause", 4)
    driver.step()
    assert [o.verdict for o in driver.ledger.control.outcomes] == [
        "damaged", "unknown", "foreign", "taken",
    ]  # fmt: skip
    assert [a["verdict"] for name, a in answers(store).items() if "answer" in name] == [
        "damaged", "unknown", "foreign", "taken",
    ]  # fmt: skip


def test_requests_are_trimmed_but_for_the_newest_and_answers_are_kept_longer():
    store = MemoryStore(limited(listen_every_s=0.0, outcomes_kept=3))
    driver = driver_of(counting(VALUES), store)
    run(driver)
    for at in range(1, 7):
        put(store, "pause" if at % 2 else "resume", at)
        driver.step()
    names = store.list("control")
    assert [n for n in names if n.isdigit()] == [f"{6:020d}"]
    assert sorted(n for n in names if n.endswith(".answer")) == [
        f"{at:020d}.answer" for at in (4, 5, 6)
    ]


@pytest.mark.parametrize("where", ["before-control-write", "after-control-write"])
def test_a_driver_that_dies_at_its_entry_leaves_one_outcome_and_one_answer(where):
    store = MemoryStore(limited(listen_every_s=0.0))
    driver = driver_of(counting(VALUES), store)
    run(driver)
    put(store, "rescale", arguments={"computation": "Count", "slots": 4})
    failpoints.arm(where, die)
    with pytest.raises(Crash):
        driver.step()
    failpoints.disarm()
    assert answers(store) == {}
    again = driver_of(counting(VALUES), store)
    again.step()
    assert [o.verdict for o in again.ledger.control.outcomes] == ["taken"]
    assert [a["verdict"] for a in answers(store).values()][:1] == ["taken"]


def test_a_driver_that_dies_before_its_answer_is_answered_for_by_the_next():
    store = MemoryStore()
    driver = driver_of(counting(VALUES), store)
    run(driver, 1)
    put(store)
    driver.step()  # the commit has the outcome
    assert answers(store) == {}
    driver_of(counting(VALUES), store)
    assert [a["verdict"] for a in answers(store).values()] == ["taken", "done"]


def test_expiry_is_judged_by_the_wall_time_of_the_entry():
    store = MemoryStore(limited(listen_every_s=0.0))
    driver = driver_of(counting(VALUES), store)
    run(driver)
    wall = driver.ledger.wall
    put(store, "pause", 1, expires=wall - 1)
    driver.step()
    [outcome] = driver.ledger.control.outcomes
    assert outcome.verdict == "expired" and outcome.wall >= wall
    assert not driver.ledger.control.paused


def test_a_leader_that_does_not_reach_the_queue_runs_on():
    class Deaf(MemoryStore):
        def read(self, name):
            if name.startswith("control/"):
                raise OSError("unreachable")
            return super().read(name)

    driver = driver_of(counting(VALUES), Deaf())
    assert run(driver) == 21


def test_requests_are_read_in_a_thread_while_the_job_runs():
    store = MemoryStore()
    driver = driver_of(counting(VALUES), store, background=True)
    run(driver, 1)
    put(store)
    seen = []
    while not driver.ledger.control.paused and len(seen) < 200:
        seen.append(driver.step())
    assert driver.ledger.control.paused
    driver.close()


# Stop ---------------------------------------------------------------------


def stopped_by(store, verb="stop"):
    driver = driver_of(counting(VALUES), store)
    run(driver, 2)
    put(store, verb)
    driver.step()
    return driver


def test_a_stop_is_completed_in_the_log_before_the_driver_ends():
    store = MemoryStore()
    driver = stopped_by(store)
    assert driver.ledger.control.stop == ASKED
    assert driver.step() == Finish("stopped")
    assert ledger_of(store).control.stop == STOPPED
    assert ledger_of(store).open_plan is None
    assert [a["verdict"] for a in answers(store).values()] == ["taken", "done"]


def test_a_start_that_finds_a_stop_that_was_not_completed_completes_it_and_ends():
    store = MemoryStore()
    stopped_by(store)  # it dies here
    driver = driver_of(counting(VALUES), store)
    assert driver.step() == Finish("stopped")
    assert ledger_of(store).epoch == 3
    again = driver_of(counting(VALUES), store)
    assert isinstance(again.step(), Run), "the next start by a person goes on"
    assert ledger_of(store).control.stop == ""


def test_a_standby_and_a_supervised_start_do_not_go_on_from_a_stop():
    store = MemoryStore()
    stopped_by(store).step()
    before = dict(store.files)
    with pytest.raises(PipelineStopped):
        follower_of(counting(VALUES), store).take_over(lapsed=1)
    with pytest.raises(PipelineStopped):
        driver_of(counting(VALUES), store, supervised=True)
    told = []
    job = Job(follower_of(counting(VALUES), store, supervised=True, on_notice=told.append))
    assert job.wait(60).reason == "stopped"
    assert "was stopped by a request" in told[0].text
    job = Job(follower_of(counting(VALUES), store, standby=True, lease_s=1.0))
    assert job.wait(60).reason == "stopped"
    assert {n: d for n, d in store.files.items() if n != "LEASE"} == before
    assert Job(follower_of(counting(VALUES), store)).wait(60).reason == "end"


def test_a_standby_completes_a_stop_that_its_leader_did_not():
    store = MemoryStore()
    stopped_by(store)  # it dies here, without a lease
    job = Job(follower_of(counting(VALUES), store, standby=True, lease_s=0.3))
    assert job.wait(60).reason == "stopped"
    assert ledger_of(store).control.stop == STOPPED and ledger_of(store).epoch == 3


# Jobs ---------------------------------------------------------------------


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def job_of(store, topology=None, **options):
    return Job(follower_of(topology or endless(), store, until=None, lease_s=5.0, **options))


def test_the_verbs_of_a_job_are_entries_of_the_log():
    store = MemoryStore()
    with job_of(store) as job:
        until(lambda: job.status().epoch > 2)
        assert job.pause().verdict == "taken"
        until(lambda: job.status().phase == "paused")
        epoch = job.status().epoch
        assert ledger_of(store).control.paused
        job.rescale("Count", 3)
        assert ledger_of(store).wanted["Count"].slots == 3
        with pytest.raises(InvalidPipeline, match="rescale: refused: there is no computation"):
            job.rescale("Nothing", 3)
        assert job.savepoint("here").done == f"here holds epoch {epoch}"
        assert ledger_of(store).control.savepoints["here"].epoch == epoch
        job.drop_savepoint("here")
        job.resume()
        until(lambda: job.status().epoch > epoch)
        assert job.stop().reason == "stopped"
    assert ledger_of(store).control.stop == STOPPED
    assert [o.position for o in ledger_of(store).control.outcomes] == [0] * 7
    with pytest.raises(IncompatibleState, match="has ended; ask the driver that leads"):
        job.pause()


def test_a_stop_ends_the_standbys_too():
    store = MemoryStore()
    leader = job_of(store)
    until(lambda: leader.status().epoch > 2)
    standby = job_of(store, standby=True)
    until(lambda: standby.status().phase == "standby")
    with pytest.raises(IncompatibleState, match="is a standby; ask the driver that leads"):
        standby.pause()
    leader.stop()
    assert standby.wait(60).reason in ("stopped", "not_needed")
    assert ledger_of(store).control.stop == STOPPED


# From outside -------------------------------------------------------------


def test_commands_from_outside_reach_a_running_pipeline():
    store = MemoryStore()
    with job_of(store) as job:
        until(lambda: job.status().epoch > 2)
        remote = Remote(store)
        assert remote.pause().message.startswith("paused after epoch")
        until(lambda: job.status().phase == "paused")
        again = remote.ask("resume", {}, command="c")
        assert again.verdict == "taken"
        assert remote.ask("resume", {}, command="c").verdict == "repeated"
        assert remote.rescale("Count", 4).message.startswith("Count has 4 slots since epoch")
        assert remote.rescale("Count", 4).message == "Count has 4 slots already"
        assert remote.savepoint("s").message.startswith("s holds epoch")
        with pytest.raises(InvalidPipeline, match="savepoint: refused: there is a savepoint 's'"):
            remote.savepoint("s")
        assert remote.stop().message.startswith("stopped after epoch")
        assert job.wait(60).reason == "stopped"
    with pytest.raises(IncompatibleState, match="is stopped, after epoch .* `headrace run`"):
        remote.pause()


def test_several_ask_at_once_and_each_is_answered():
    store = MemoryStore()
    told = []
    with job_of(store) as job:
        until(lambda: job.status().epoch > 2)
        remote = Remote(store)
        asks = [
            threading.Thread(target=lambda v=verb: told.append((v, remote.ask(v, {}).position)))
            for verb in ("pause", "resume") * 4
        ]
        for each in asks:
            each.start()
        for each in asks:
            each.join(60)
    assert sorted(position for _, position in told) == list(range(1, 9))


def test_a_command_where_no_pipeline_runs_says_so_and_leaves_nothing_behind():
    store = MemoryStore()
    Job(follower_of(counting(VALUES), store, lease_s=5.0)).wait(60)
    before = dict(store.files)
    with pytest.raises(IncompatibleState, match=r"does not run on .*last driver has ended \(end\)"):
        Remote(store).pause()
    assert store.files == before


def test_a_command_that_nobody_hears_says_so_and_concludes_nothing():
    store = MemoryStore(Hurried())
    driver = driver_of(counting(VALUES), store)
    run(driver, 2)
    write_lease(store, Lease(driver.log.generation, 3, 0.2, 2, HELD))
    with pytest.raises(Unheard, match="no driver has answered .*none came within 0 s.* Request 1"):
        Remote(store).ask("pause", {}, timeout_s=0.3)
    run(driver)  # it was not dead after all
    assert driver.ledger.control.paused, "and takes the request, which has not expired"
