"""`Map`: a dict in key order whose changes are known entry by entry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import IncompatibleState, InvalidRecord, Map
from headrace.model.values.codec import Codec
from headrace.model.values.keys import encode_part
from headrace.model.values.time import END


class Cells(dict):
    """Stored entries: bytes -> (bytes, expires)."""

    def scan(self, low, high):
        for entry, cell in self.items():
            if (low is None or low <= entry) and (high is None or entry < high):
                yield entry, cell


def stored(codec, entries, expires=END):
    return Cells({encode_part(k): (codec.encode(v), expires) for k, v in entries.items()})


def a_map(entries=(), *, of=int, ttl_us=None, expires=END):
    codec = Codec(of, where="C.m")
    return Map(codec, stored(codec, dict(entries), expires), ttl_us)


def changed(m):
    return {entry: data for entry, data, _ in m.take_changes()}


@given(st.dictionaries(st.integers(-100, 100), st.integers(0, 9), max_size=8), st.data())
def test_it_behaves_like_a_sorted_dict(begin, data):
    m, model = a_map(begin), dict(begin)
    for _ in range(6):
        key = data.draw(st.integers(-100, 100))
        act = data.draw(st.sampled_from(["set", "pop", "get", "default", "range"]))
        if act == "set":
            m[key] = model[key] = data.draw(st.integers(0, 9))
        elif act == "pop":
            assert m.pop(key, None) == model.pop(key, None)
        elif act == "get":
            assert (m.get(key), key in m) == (model.get(key), key in model)
        elif act == "default":
            assert m.setdefault(key, 5) == model.setdefault(key, 5)
        else:
            high = data.draw(st.integers(-100, 100))
            expected = sorted((k, v) for k, v in model.items() if key <= k < high)
            assert list(m.range(key, high)) == expected
        assert list(m) == sorted(model)
        assert len(m) == len(model) and bool(m) == bool(model)
    assert m == model
    assert list(m.items()) == sorted(model.items())
    differing = {k for k in begin.keys() | model.keys() if begin.get(k) != model.get(k)}
    assert set(changed(m)) == {encode_part(k) for k in differing}


def test_text_numbers_and_tuples_come_in_their_order():
    assert list(a_map({"b": 1, "": 2, "ab": 3, "é": 4, "z": 5})) == ["", "ab", "b", "z", "é"]
    assert list(a_map({5: 1, -300: 2, 0: 3, -1: 4, 2**63: 5})) == [-300, -1, 0, 5, 2**63]
    assert list(a_map({("b", -1): 1, ("a", 7): 2, ("b", -2): 3})) == [
        ("a", 7),
        ("b", -2),
        ("b", -1),
    ]


def test_only_what_changed_is_written():
    m = a_map({i: i for i in range(100)})
    m[50] += 1
    m[51] = 51
    assert changed(m) == {encode_part(50): Codec(int, where="").encode(51)}
    assert changed(m) == {}


def test_a_change_in_place_is_seen():
    m = a_map({"a": [1], "b": [1]}, of=list[int])
    m["a"].append(2)
    assert m["b"] == [1]
    assert set(changed(m)) == {encode_part("a")}
    m["b"].append(2)
    assert set(changed(m)) == {encode_part("b")}


def test_an_entry_set_and_removed_leaves_no_trace():
    m = a_map()
    m["a"] = 1
    del m["a"]
    assert changed(m) == {}


def test_a_missing_key_is_a_key_error():
    m = a_map()
    with pytest.raises(KeyError):
        m["a"]
    with pytest.raises(KeyError):
        del m["a"]


def test_clear_and_update_work_entry_by_entry():
    m = a_map({"a": 1, "b": 2})
    m.clear()
    m.update({"b": 2, "c": 3})
    assert m == {"b": 2, "c": 3}
    assert set(changed(m)) == {encode_part("a"), encode_part("c")}


@pytest.mark.parametrize("key", [True, 1.5, ["a"], "\ud800"], ids=repr)
def test_a_key_that_cannot_be_one_is_refused(key):
    with pytest.raises(InvalidRecord):
        a_map()[key] = 1


def test_a_value_of_another_type_is_refused_when_it_is_written():
    m = a_map()
    m["a"] = "text"
    with pytest.raises(TypeError, match="declared as int"):
        changed(m)


def test_entries_stored_with_another_type_are_incompatible_state():
    codec = Codec(str, where="C.m")
    m = Map(Codec(int, where="C.m"), stored(codec, {"a": "x"}))
    with pytest.raises(IncompatibleState, match="another type"):
        m["a"]


def test_an_entry_ends_when_its_time_to_live_has_passed():
    m = a_map({"a": 1}, ttl_us=10, expires=100)
    m.clock = 99
    assert "a" in m
    m.clock = 100
    assert "a" not in m and list(m) == []
    assert changed(m) == {encode_part("a"): None}


def test_a_read_does_not_prolong_an_entry_but_a_write_of_the_same_value_does():
    m = a_map({"a": 1, "b": 1}, ttl_us=10, expires=100)
    m.clock = 95
    assert m["a"] == m["b"] == 1
    m["b"] = 1
    assert m.note()
    assert [(entry, expires) for entry, _, expires in m.take_changes()] == [(encode_part("b"), 105)]


def test_a_change_in_place_prolongs_from_its_own_hook_not_from_a_later_read():
    m = a_map({"a": [1]}, of=list[int], ttl_us=10, expires=100)
    m.clock = 90
    m["a"].append(2)
    assert m.note()
    m.clock = 99
    assert m["a"] == [1, 2]
    assert not m.note()
    assert [expires for _, _, expires in m.take_changes()] == [100]


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 3)), max_size=6), st.data())
def test_undo_takes_back_all_that_came_after_remember(begin, data):
    m = a_map(begin, of=list[int], ttl_us=10, expires=100)
    m.clock = 50
    model = {}
    for step in range(2):
        if step:
            m.note()
            model = {k: list(v) for k, v in m.items()}
            m.remember()
            m.clock = data.draw(st.sampled_from([50, 99, 100]))
        for _ in range(4):
            key = data.draw(st.integers(0, 9))
            act = data.draw(st.sampled_from(["set", "pop", "push", "clear"]))
            if act == "set":
                m[key] = [step]
            elif act == "pop":
                m.pop(key, None)
            elif act == "push" and key in m:
                m[key].append(7)
            elif act == "clear" and key == 0:
                m.clear()
    m.undo()
    m.trust()
    m.clock = 50
    assert m == model
    differing = {k for k in begin.keys() | model.keys() if begin.get(k) != model.get(k)}
    assert {encode_part(key) for key in differing} <= set(changed(m))


def test_what_is_removed_while_warm_leaves_nothing_behind() -> None:
    entries: Map[int, int] = Map(Codec(int, where="here"), Cells())
    for round in range(5):
        for i in range(round * 10, round * 10 + 10):
            entries[i] = i
            entries.pop(i - 10, None)
        list(entries.take_changes())
        assert [k for k, _ in entries.items()] == list(range(round * 10, round * 10 + 10))
    entries.clear()
    assert {name for name, data, _ in entries.take_changes() if data is None}
    assert not entries._seen
    assert not entries._names


def test_ranges_that_slide_ask_for_each_stored_entry_once() -> None:
    codec = Codec(int, where="here")
    asked: list[bytes] = []

    class Counted(Cells):
        def scan(self, low, high):
            for entry, cell in super().scan(low, high):
                asked.append(entry)
                yield entry, cell

    entries: Map[int, int] = Map(codec, Counted(stored(codec, {i: i for i in range(100)})))
    for low in range(0, 90):
        assert [k for k, _ in entries.range(low, low + 10)] == list(range(low, low + 10))
    assert len(asked) == len(set(asked)) == 99
    assert [k for k, _ in entries.range(95, 97)] == [95, 96]
    assert len(entries) == len(asked) == 100
