"""A segment comes back as it was written, and nothing else is ever taken for one."""

import pickle
import random

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.state.support import field, timer, written

from headrace.errors import CorruptCheckpoint, EpochFailed, IncompatibleState
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.identity import claim_identity
from headrace.state.bloom import Bloom
from headrace.state.segment import FORMAT, SCHEMA, Cell, Segment, encode_batch, encode_segment
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore


def named(data: bytes) -> str:
    return f"state/C/{paths.content_name(1, 'C/0', digest_of(data), '.arrow')}"


def opened(data: bytes) -> Segment:
    return Segment(named(data), pa.py_buffer(data))


def rows_of(segment: Segment) -> list[Cell]:
    return [Cell(*row.values()) for row in segment.batch.to_pylist()]


CELLS = [
    field("b", "n", b"1", time=5, expires=99),
    field("a", "n", None),
    field("a", "m", b"\x00\xff"),
    timer("a", b"tag", 7, hold=3),
    timer("a", b"tag2", None),
]


def test_cells_come_back_sorted_by_hash_key_kind_field_and_entry(tmp_path) -> None:
    store = DiskStore(tmp_path)
    store.make_directory("state/C")
    segment = Segment.open(store, written(store, CELLS, 1).segment)
    assert rows_of(segment) == sorted(CELLS)
    assert segment.hashes.tolist() == sorted(cell.hash for cell in CELLS)


def test_a_segment_without_cells_is_a_segment() -> None:
    segment = opened(encode_segment([]))
    assert rows_of(segment) == [] and segment.between(0, 2**64) == (0, 0)


def test_the_same_cells_make_the_same_bytes_in_any_order() -> None:
    shuffled = CELLS[:]
    random.Random(1).shuffle(shuffled)
    assert encode_segment(shuffled) == encode_segment(CELLS)


def test_rows_between_two_hashes_are_those_and_no_others() -> None:
    cells = [Cell(h, b"k%d" % h, 0, "n", b"", b"", 0) for h in (0, 5, 5, 2**63, 2**64 - 1)]
    segment = opened(encode_segment([c._replace(entry=b"%d" % i) for i, c in enumerate(cells)]))
    assert segment.between(0, 2**64) == (0, 5)
    assert segment.between(0, 5) == (0, 1)
    assert segment.between(5, 6) == (1, 3)
    assert segment.between(2**63, 2**64 - 1) == (3, 4)
    assert segment.between(2**64 - 1, 2**64) == (4, 5)


def without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object) -> None:
        raise AssertionError("a byte of a damaged file was decoded")

    monkeypatch.setattr(pa.ipc, "open_file", decoded)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: data + b"\x00",
        lambda data: pickle.dumps(["not", "a", "segment"]),
    ],
    ids=["short by one", "half", "empty", "one bit flipped", "one byte more", "a pickle"],
)
def test_a_damaged_file_is_refused_before_a_byte_is_decoded(
    damage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    name = written(store, CELLS, 1).segment
    store.files[name] = damage(store.files[name])
    without_decoding(monkeypatch)
    with pytest.raises(CorruptCheckpoint, match="is damaged") as error:
        Segment.open(store, name)
    assert name in str(error.value)


def test_a_pickle_with_the_right_digest_in_its_name_is_not_a_segment() -> None:
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was loaded",))

    with pytest.raises(CorruptCheckpoint, match="not a segment"):
        opened(pickle.dumps(Bomb()))


def arrow_file(schema: pa.Schema, columns: dict | None = None) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, schema) as writer:
        if columns is not None:
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
    return out.getvalue().to_pybytes()


def test_an_arrow_file_of_somebody_else_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint, match="not a segment of Headrace"):
        opened(arrow_file(pa.schema([("x", pa.int64())]), {"x": [1]}))
    with pytest.raises(CorruptCheckpoint, match="not a segment of Headrace"):
        opened(arrow_file(SCHEMA))


def test_a_segment_with_other_columns_or_no_format_is_refused() -> None:
    ours = {b"headrace": b"segment", b"format": b"1", b"bloom": b"\0" * 8}
    with pytest.raises(CorruptCheckpoint, match="other columns"):
        opened(arrow_file(pa.schema([("x", pa.int64())], ours), {"x": [1]}))
    with pytest.raises(CorruptCheckpoint, match="format"):
        opened(arrow_file(SCHEMA.with_metadata({b"headrace": b"segment"})))


def test_a_newer_format_asks_for_an_upgrade() -> None:
    newer = {b"headrace": b"segment", b"format": str(FORMAT + 1).encode()}
    with pytest.raises(IncompatibleState, match="upgrade"):
        opened(arrow_file(SCHEMA.with_metadata(newer)))


def test_a_missing_segment_is_said_to_be_missing() -> None:
    store = MemoryStore()
    claim_identity(store, "orders")
    with pytest.raises(CorruptCheckpoint, match="missing from the checkpoint"):
        Segment.open(store, named(b"gone"))


def test_a_file_that_is_not_named_by_content_is_refused() -> None:
    with pytest.raises(CorruptCheckpoint, match="epoch-label-digest"):
        Segment("state/C/segment.arrow", pa.py_buffer(encode_segment(CELLS)))


def test_state_opens_with_plain_pyarrow(tmp_path) -> None:
    (tmp_path / "s.arrow").write_bytes(encode_segment(CELLS))
    table = pa.ipc.open_file(str(tmp_path / "s.arrow")).read_all()
    assert table.num_rows == len(CELLS) and table.schema.names == SCHEMA.names


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 20_000])
def test_a_bloom_filter_never_denies_what_is_there_and_denies_most_of_the_rest(count: int) -> None:
    dice = np.random.default_rng(1)
    there = dice.integers(0, 2**64, count, np.uint64)
    others = dice.integers(0, 2**64, 5000, np.uint64)
    bloom = Bloom.from_bytes(Bloom.of(there).to_bytes())
    assert bloom.may_have(there).all()
    assert bloom.may_have(others).mean() < 0.05


def test_a_bloom_filter_takes_the_edges_of_the_key_space() -> None:
    edges = np.array([0, 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    assert Bloom.of(edges).may_have(edges).all()


def test_a_batch_that_was_sorted_elsewhere_is_written_as_it_is() -> None:
    data = encode_segment(CELLS)
    assert encode_batch(opened(data).batch) == data


def test_more_than_a_column_holds_is_refused_with_a_way_out():
    encode_segment([field(i, "n", b"x" * 90) for i in range(10)], column_bytes_max=1000)
    with pytest.raises(EpochFailed, match=r"slot C/3: 20 changes .*'value'.*epoch_records"):
        encode_segment([field(i, "n", b"x" * 90) for i in range(20)], "slot C/3", 1000)


def of_format_1(cells: list[Cell]) -> bytes:
    """A file as it was written before segments had orders."""
    batch = pa.ipc.open_file(encode_segment(cells)).get_batch(0)
    bloom = Bloom.of(np.unique(batch.column("hash").to_numpy())).to_bytes()
    out = pa.BufferOutputStream()
    ours = {b"headrace": b"segment", b"format": b"1", b"bloom": bloom}
    with pa.ipc.new_file(out, SCHEMA.with_metadata(ours)) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def test_a_segment_of_format_1_is_read_like_one_of_format_2() -> None:
    cells = [*CELLS, *(timer("c", b"%d" % i, 9 - i, hold=i) for i in range(5))]
    old, new = opened(of_format_1(cells)), opened(encode_segment(cells))
    assert rows_of(old) == rows_of(new)
    assert old.bloom.to_bytes() == new.bloom.to_bytes()
    assert (old.index.kinds, old.index.timed) == (new.index.kinds, new.index.timed) == (5, 7)
    for name, rows in new.index.orders.items():
        assert old.index.orders[name].tolist() == rows.tolist()
    assert [int(new.times[row]) for row in new.index.by_time("event")] == [5, 6, 7, 7, 8, 9]
    assert [int(new.expires[row]) for row in new.index.by_hold("event")] == [0, 1, 2, 3, 3, 4]


def test_other_readers_of_arrow_see_the_rows_and_nothing_else() -> None:
    data = encode_segment(CELLS)
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    assert [Cell(*row.values()) for row in table.to_pylist()] == sorted(CELLS)
    # A reader of streams skips the magic, and stops at the end of the stream.
    stream = pa.ipc.open_stream(pa.py_buffer(data[8:])).read_all()
    assert stream.equals(table)


def test_a_segment_without_its_index_is_refused() -> None:
    ours = {b"headrace": b"segment", b"format": b"2"}
    data = arrow_file(SCHEMA.with_metadata(ours), {name: [] for name in SCHEMA.names})
    with pytest.raises(CorruptCheckpoint, match="no index"):
        opened(data)
