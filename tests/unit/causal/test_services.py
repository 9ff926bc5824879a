"""Clock, dice and ids: the same on every retry, different wherever they should be."""

import uuid

from tests.unit.pipelines import at, one

from headrace import Computation, state, to
from headrace.causal.services import Drawing
from headrace.testing import CRASH, Harness
from headrace.testing.harness import START


class Draw(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        value = record.value.get("n")
        if value == "quiet":
            return
        if value == "fail at once":
            raise ValueError("no")
        drawn = [str(ctx.uuid()), ctx.random.random(), ctx.now()]
        ctx.set_timer(record.timestamp, at=record.timestamp + 1000)
        if value == "fail":
            raise ValueError("no")
        ctx.produce({"k": ctx.key, "t": record.timestamp, "drawn": drawn})

    def process_timer(self, timer, ctx):
        ctx.produce(
            {
                "k": ctx.key,
                "t": timer.timestamp,
                "drawn": [str(ctx.uuid()), ctx.random.random(), ctx.now()],
            }
        )


class Bare(Computation):
    def process_record(self, record, ctx):
        ctx.produce([str(ctx.uuid()), ctx.random.random(), ctx.now()])


def drawn(h):
    return {(row["k"], row["t"]): row["drawn"] for row in h.read("out")}


def run(*items, **options):
    with Harness(one(Draw, **options)) as h:
        h.send("in", *items)
        h.end()
        return drawn(h)


def test_a_crash_and_a_replay_draw_the_same():
    def answers(crash):
        with Harness(one(Draw)) as h:
            h.send("in", at(1), at(2), at(3, "b"))
            if crash:
                h.crash(at="before-commit-write")
            h.send("in", at(4))
            return {k: v for k, v in drawn(h).items() if k[1] < 4}

    assert answers(crash=True) == answers(crash=False)


def test_every_hook_of_every_key_draws_its_own():
    found = run(*(at(t, k) for t in range(5) for k in "abc"))
    assert len(found) == 30
    assert len({d[0] for d in found.values()}) == len({d[1] for d in found.values()}) == 30


def test_skipping_a_record_shifts_nobody_elses_dice():
    values = [at(1), at(2), at(3), at(3, "b")]
    expected = run(*values)
    for skipped in ("quiet", "fail", "fail at once"):
        changed = [at(1), at(2, n=skipped), at(3), at(3, "b")]
        found = run(*changed, errors=to("dead"))
        for place in (("a", 1), ("a", 3), ("b", 3)):
            assert found[place] == expected[place], (skipped, place)


def drawing(seed=1, computation="C", key=b"key", hook=0, wall=1000):
    found = Drawing()
    found.prepare_drawing(wall, seed, computation)
    found.key_bytes, found.hook = key, hook
    return found


def test_now_is_the_plans_time_and_moves_by_a_microsecond_a_call():
    services = drawing()
    assert [services.now(), services.now()] == [1000, 1001]
    services.hook = 1
    assert services.now() == 1000


def test_now_in_a_pipeline_follows_its_clock():
    with Harness(one(Bare)) as h:
        h.send("in", at(1))
        h.advance("10s")
        h.send("in", at(20_000_000))
        first, second = (row[2] for row in h.read("out"))
        assert START <= first < START + 1000
        assert START + 10_000_000 <= second < START + 10_001_000


def test_ids_are_uuids_that_depend_on_all_that_names_them():
    ids = set()
    for seed in (1, 2):
        for computation in ("C", "D"):
            for key in (b"a", b"b", b"a\n1"):
                for hook in (0, 1, 11):
                    services = drawing(seed, computation, key, hook)
                    ids |= {services.uuid(), services.uuid()}
    assert len(ids) == 2 * 2 * 3 * 3 * 2
    assert all(isinstance(i, uuid.UUID) and i.version == 4 for i in ids)


def test_dice_go_on_within_a_hook():
    services = drawing()
    assert len({services.random.random() for _ in range(10)}) == 10


def test_dice_that_a_hook_kept_are_the_next_hooks_own():
    def draws(dice, services):
        found = []
        for services.hook in range(3):
            found.append([dice.gauss(), dice.random(), dice.getrandbits(70)])
        return found

    services, other = drawing(), drawing()
    kept = draws(services.random, services)
    assert kept == draws(other.random, other)
    other.hook = 1
    other.restart_draws()  # what the hooks before have drawn does not count
    assert [other.random.gauss(), other.random.random()] == kept[1][:2]


def test_a_key_that_begins_anew_draws_the_same():
    services = drawing()
    first = [services.random.random(), services.now(), services.uuid()]
    services.restart_draws()
    assert [services.random.random(), services.now(), services.uuid()] == first
    services.key_bytes = b"other"
    services.restart_draws()
    assert services.random.random() != first[0] and services.uuid() != first[2]


def test_dice_are_even_across_hooks_keys_and_draws():
    found, ids = [], set()
    for key in range(100):
        services = drawing(key=b"%d" % key)
        for services.hook in range(100):
            found += [services.random.random() for _ in range(3)]
            ids |= {services.uuid(), services.uuid()}
    assert len(set(found)) == 30_000 and len(ids) == 20_000
    counts = [0] * 100
    for number in found:
        counts[int(number * 100)] += 1
    chi = sum((count - 300) ** 2 / 300 for count in counts)
    assert 50 < chi < 160  # 99 degrees of freedom
    for lag in (1, 3, 300):  # the next draw, the next hook, the next key
        pairs = list(zip(found, found[lag:], strict=False))
        mean = sum((a - 0.5) * (b - 0.5) for a, b in pairs) / len(pairs) * 12
        assert abs(mean) < 0.03
    bits = [sum(i.int >> bit & 1 for i in ids) for bit in range(128)]
    assert sum(9_600 < count < 10_400 for count in bits) == 128 - 6  # version and variant


def test_keyless_code_draws_by_place_and_repeats_it_after_a_crash():
    def answers(*crash):
        with Harness(one(Bare, key=None)) as h:
            h.send("in", at(1), at(1), at(2), *crash)
            return h.read("out")

    assert answers() == answers(CRASH)
    assert len({row[0] for row in answers()}) == 3


def test_a_failed_record_at_the_end_does_not_make_the_others_draw_on():
    expected = run(at(1))
    assert run(at(1), at(2, n="fail at once"), errors=to("dead")) == expected


def test_keyless_code_draws_anew_for_letters_about_keys():
    # They are made when rows leave, after the other letters of the same task.
    p = one(Draw, read_errors=to("dead"), errors=to("dead"))
    p.compute(Bare, inputs={"dead": None}, outputs="ids", name="Bare")
    with Harness(p) as h:
        h.send("in", {"no": "time"}, {"t": 1, "no": "key"})
        ids = [row[0] for row in h.read("ids")]
        assert len(ids) == len(set(ids)) == 2


def test_two_epochs_draw_differently():
    with Harness(one(Bare)) as h:
        h.send("in", at(1))
        h.send("in", at(1))
        one_, two = h.read("out")
        assert one_[0] != two[0] and one_[1] != two[1]
