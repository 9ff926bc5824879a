"""The schedules that the protocol's rules were made for are among those of the suite.

Each is recognised in the traces by what happens in it, in this order. Left out are rules that only
Spark can break (B4, B5), rules without schedules (C5, C6, C10, D4, D5, D12, D13), those that other
tests show directly (A7, C9, F3), and G and H. Of D2 and D8 a trace
shows only how the input was cut; what must come of it is for the workloads to check.
"""

import re

import pytest

from headrace.testing.simulator.runner import Verdict

pytestmark = pytest.mark.timeout(2400)

LOG = r"/checkpoint/log/\S+"

SCHEDULES = {
    "A1 a paused driver wakes before its commit, and is fenced": (
        r"driver (?P<d>\d+) pauses at before-commit-write",
        r"driver (?P=d) stops: Fenced",
    ),
    "A1 a paused driver wakes before its plan, and is fenced": (
        r"driver (?P<d>\d+) pauses at before-plan-write",
        r"driver (?P=d) stops: Fenced",
    ),
    "A2 a put succeeded and reported failure": (rf"link {LOG} is done but reported as failed",),
    "A2 a put succeeded, and its repetition found the name taken": (rf"link {LOG} is done, sent",),
    "A2 a put that was given up lands late": (rf"late, but done: link {LOG}",),
    "A2 two drivers take over at once": (
        r"driver (?P<d>\d+) pauses at before-takeover",
        r"driver \d+ starts",
        r"driver (?P=d) ",
    ),
    "A3 a driver dies while it writes an entry": (
        r"dies at (link|create|unlink) /checkpoint/log/",
    ),
    "A3 the power fails": (r"the power fails",),
    "A3 a driver sleeps while the log is trimmed": (r"stops: Fenced: .*trimmed",),
    "A4, C8 a driver wakes in the middle of a collection": (
        r"driver (?P<d>\d+) pauses at before-collect",
        r"driver \d+ starts",
    ),
    "A5 a plan is open while the code changes": (
        r"\(code 1\)",
        r"dies at (after-plan-write|before-job|after-job|before-commit-write)",
        r"driver \d+ starts \(code 2",
    ),
    "A5 a plan is voided for the substrate's sake": (r"the job of epoch \d+ is aborted",) * 2,
    "A6 a successor has a slow clock": (
        r"driver 1 starts",
        r"driver [2-9]: its clock is off by -",
    ),
    "A6 an hour passes between a carried plan and its job": (
        r"epoch (?P<e>\d+) is planned with the commit before it",
        r"an idle hour passes",
        r"epoch (?P=e) is committed",
    ),
    "B1 a zombie writes its segment late": (
        r"task [1-9]/\d+ of epoch \d+ hangs",
        r"the zombie of task [1-9]",
    ),
    "B1 a segment's rename fails": (r"rename /checkpoint/state/\S+ is",),
    "B3 consumers see different outputs of one producer": (r"some consumers have seen its first",),
    "B3 a label is seen twice": (r"runs twice, both outputs arrive",),
    "B3 a label is missing": (r"its (control|report) for \d+ is lost",),
    "C1 a split, then a merge": (r"the ring of (?P<r>\w+): split", r"the ring of (?P=r): merge"),
    "C1 a merge of segments between a split and a merge of the ring": (
        r"the ring of (?P<r>\w+): split",
        r"a merge of (?P=r) is adopted",
        r"the ring of (?P=r): merge",
    ),
    "C1 a move": (r"the ring of \w+: move",),
    "C2 a merge is left behind by a driver that dies": (r"dies at \w+ /checkpoint/merged/",),
    "C4 a task dies in the middle of its user code": (r"dies in the middle of its user code",),
    "C4 an attempt is dropped, and workers go on": (r"its blob for \d+ is lost",),
    "C4 a worker is lost": (r"a worker is lost",),
    "C8 a zombie task writes after its epoch": (
        r"task \d+/\d+ of epoch (?P<e>\d+) hangs",
        r"the zombie of task \d+/\d+ of epoch (?P=e) ",
    ),
    "D1, D9 a ring moves while timers wait": (r"the ring of First: ",),
    "D2 the whole input is one epoch": (
        r"epoch 1 is planned: [1-9]\d* records\n",
        r"epoch 2 is planned[^\n]*: 0 records, the last",
    ),
    "D6 a ring moves while feedback waits": (r"the ring of Gate: ",),
    "D7 timers and records after an outage": (
        r"is refused",
        r"driver \d+ stops: StoreError",
        r"driver \d+ starts",
    ),
    "D8 rows of one instant are cut, while slots move": (
        r"epoch 1 is planned",
        r"the ring of NumberArrivals: ",
        r"epoch [2-9] is planned[^\n]*: [1-9]",
    ),
    "D10 a driver dies with the last epoch open, and another runs it": (
        r"epoch (?P<e>\d+) is planned[^\n]*, the last",
        r"driver \d+ dies",
        r"driver \d+ starts",
        r"epoch (?P=e) is committed",
    ),
    "D10 the last epoch's job is aborted": (
        r"epoch (?P<e>\d+) is planned[^\n]*, the last",
        r"the job of epoch (?P=e) is aborted",
        r"epoch (?P=e) is committed",
    ),
    "E2 a call's owner sleeps with its intent, and its successor asks at once": (
        r"driver (?P<d>\d+) pauses at after-intent-write",
        r"driver \d+ starts",
    ),
    "E2 the successor of a voided plan asks again, and is answered from the log": (
        r"charge (?P<c>\S+) reaches the outside",
        r"driver \d+ starts \(code [2-9]",
        r"charge (?P=c) is answered from the log",
    ),
    "E2 determinants were swept, and a zombie is turned away": (
        r"task \S+ of epoch (?P<e>\d+) hangs",
        r"the zombie of task \S+ of epoch (?P=e) is turned away",
    ),
    "E2 a task dies around its call": (r"dies around a call to the outside",),
    "E2 a call is uncertain, and stays so": (r"charge \S+ is uncertain",),
    "E2 an uncertain call that may repeat is made again": (
        r"lookup (?P<c>\S+) reaches the outside",
        r"lookup (?P=c) reaches the outside",
    ),
    "E3 a retried task calls again": (
        r"rate (?P<c>\S+) reaches the outside",
        r"rate (?P=c) reaches the outside",
    ),
    "E2 an answer that was seen, and not synced, goes with the power": (
        r"pauses before fsync /checkpoint/determinants/\d",
        r"driver \d+ starts",
        r"the power fails",
    ),
    "F1 two sinks fail twice each": (
        r"sink (?P<s>\w+) fails (before|after) it has applied",
        r"sink (?!(?P=s))(?P<t>\w+) fails (before|after) it has applied",
        r"sink (?P=s) fails (before|after) it has applied",
        r"sink (?P=t) fails (before|after) it has applied",
    ),
    "F1 renamed, dead, and the consumer takes the epoch away": (
        r"dies at after-publish",
        r"a consumer takes epoch",
    ),
    "F1 claimed and dead": (r"dies at after-claim",),
    "F1 dead after the high-water": (r"dies at after-high-water",),
    "F1 asleep with a claim while another driver delivers": (
        r"driver (?P<d>\d+) pauses at (before|after)-claim",
        r"driver \d+ starts",
    ),
    "F1 a sink fails before it applied": (r"fails before it has applied",),
    "F1 a sink fails after it applied": (r"fails after it has applied",),
    "F1 a sink fails twice in a row": (
        r"sink (?P<s>\w+) fails before it has applied epoch (?P<e>\d+)",
        r"sink (?P=s) fails before it has applied epoch (?P=e)\b",
    ),
    "F1 a sink's rename fails": (r"rename /out/\S+ is",),
    "F1 a claim's put fails": (r"link /out/\S+/_claims/\S+ is",),
    "F2 a driver sleeps before it raises the high-water": (
        r"driver (?P<d>\d+) pauses at after-publish",
        r"driver \d+ starts",
    ),
    "C8 a reader runs an epoch again while drivers go on": (
        r"reader (?P<r>\d+) pauses",
        r"epoch \d+ is committed",
        r"reader (?P=r) has run epoch",
    ),
    "C8 a reader comes too late": (r"reader \d+ stops: IncompatibleState: .*not kept",),
    "leases: a standby sees an older one": (r"reads old: LEASE",),
    "leases: a standby sees a torn one": (r"reads torn: LEASE",),
    "leases: the file comes to harm": (r"the file is (torn|empty|old): LEASE",),
    "leases: of two standbys one stands back": (r"says: standby: another driver was first",),
    "leases: a stopped leader wakes behind a standby": (
        r"driver (?P<d>\d+) pauses",
        r"driver \d+ says: leading as generation",
        r"driver (?P=d) stops: Fenced",
    ),
    "retry: the store has an outage and comes back": (
        r"/checkpoint has an outage",
        r"says: paused: the checkpoint has been unavailable",
        r"/checkpoint is back",
        r"says: the checkpoint is back",
    ),
    "retry: the store vanishes and comes back": (
        r"/checkpoint has vanished",
        r"says: paused: the checkpoint has been unavailable",
        r"/checkpoint is back",
        r"epoch \d+ is committed",
    ),
    "retry: a sink has an outage and comes back": (
        r"/out has an outage",
        r"says: paused: the sink has been unavailable",
        r"/out is back",
        r"says: the sink is back",
    ),
    "retry: a run gives up, and the next goes on": (
        r"stops: S(tore|ink)Error: .*given up",
        r"driver \d+ starts",
    ),
    "N2 a put lands and is not answered": (rf"put {LOG} is done but reported as failed",),
    "N2 a put is refused by its own first try": (rf"put {LOG} is done, sent again",),
    "N2 a put is refused, because another one is under way": (rf"put {LOG} is refused: another",),
    "N2 a put lands after its writer has tried again": (rf"late, but done: put {LOG}",),
    "N2 a put lands twice": (rf"put {LOG} is done, and once more later", r"late, but done: put"),
    "N2 a driver sleeps, and finds its position trimmed after its put": (
        r"the checkpoint lies in an object store",
        r"driver (?P<d>\d+) pauses (at|before put)",
        r"driver (?P=d) stops: Fenced: .*trimmed",
    ),
    "N2 a driver dies before it marks a directory of the log as trimmed": (
        r"dies at put /checkpoint/log/\d+\.trimmed",
    ),
    "N2 a driver sleeps before it marks a directory of calls as closed": (
        r"pauses before put /checkpoint/determinants/\S+\.closed",
    ),
    "N2 a task sleeps before its intent, while others go on": (
        r"driver (?P<d>\d+) pauses before put /checkpoint/determinants/\S+\.intent-1",
        r"driver (?!(?P=d))\d+ starts",
        r"epoch \d+ is committed",
    ),
    "N3 a delete lands late": (r"late, but done: delete /checkpoint/",),
    "N2 an old lease lands late": (r"late, but done: overwrite /checkpoint/LEASE",),
    "N2 the store is throttled": (r"is refused: too many requests",) * 3,
    "N2 an answer takes long, while another driver takes over": (
        r"/checkpoint/\S+ takes \d+ s",
        r"driver \d+ starts",
    ),
    "N2 an object store has an outage and comes back": (
        r"the checkpoint lies in an object store",
        r"/checkpoint has an outage",
        r"/checkpoint is back",
        r"epoch \d+ is committed",
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_of_the_protocol_is_met(schedule: str, verdicts: list[Verdict]) -> None:
    pattern = re.compile(".*?\n.*?".join(SCHEDULES[schedule]), re.DOTALL)
    assert any(pattern.search("\n".join(verdict.trace)) for verdict in verdicts)
