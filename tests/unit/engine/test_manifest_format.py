"""Pages and roots as bytes: what goes in comes out, and a changed byte is found."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import (
    LOG,
    SEGMENT,
    STAGED,
    Key,
    PageRef,
    Row,
    decode_page,
    decode_refs,
    encode_page,
    encode_refs,
    log_file_id,
)
from kmq_storage.model import Chunk, Segment

i63 = st.integers(0, 2**63 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32, u16 = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)
ids = st.binary(min_size=16, max_size=16)
ROWS = st.builds(
    Row,
    base_offset=i63,
    end_offset=i63,
    rows=i63,
    kind=st.sampled_from([LOG, STAGED, SEGMENT]),
    file=ids,
    position=i63,
    length=i63,
    checksum=u32,
    columns=u16,
    min_timestamp=i64,
    max_timestamp=i64,
    time=i64,
    size=i63,
)
KEYED = st.lists(st.tuples(st.tuples(ids, u32), ROWS), min_size=1, max_size=12)
PAGE_ID = bytes(range(16))


def _sorted(rows: list[tuple[Key, Row]]) -> list[tuple[Key, Row]]:
    return sorted(rows, key=lambda keyed: (keyed[0], keyed[1].base_offset))


@given(KEYED)
def test_the_rows_of_a_page_come_back(rows: list[tuple[Key, Row]]):
    rows = _sorted(rows)
    contents, ref = encode_page(rows, PAGE_ID)
    page = decode_page(contents, ref)
    assert page.rows(0, len(rows)) == [row for _, row in rows]
    assert [page.row(at) for at in range(len(rows))] == [row for _, row in rows]
    found = [key for key, (low, high) in page.spans.items() for _ in range(low, high)]
    assert found == [key for key, _ in rows]
    assert ref.first == (rows[0][0], rows[0][1].base_offset)
    assert ref.last == (rows[-1][0], rows[-1][1].base_offset)
    assert ref.rows == len(rows)
    assert ref.max_timestamp == max(row.max_timestamp for _, row in rows)
    assert page.file_words().tolist() == [int.from_bytes(row.file[:8], "little") for _, row in rows]


@given(KEYED, st.integers(0, 2**32))
def test_a_changed_byte_of_a_page_is_found(rows: list[tuple[Key, Row]], seed: int):
    contents, ref = encode_page(_sorted(rows), PAGE_ID)
    raw, rng = bytearray(contents.to_pybytes()), random.Random(seed)
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    with pytest.raises(CorruptionError, match="manifest page checksum does not match"):
        decode_page(pa.py_buffer(bytes(raw)), ref)


REFS = st.builds(
    PageRef,
    first=st.tuples(st.tuples(ids, u32), i63),
    last=st.tuples(st.tuples(ids, u32), i63),
    rows=i63,
    page_id=ids,
    checksum=u32,
    max_timestamp=i64,
)


@given(
    st.lists(REFS, max_size=5),
    st.binary(max_size=50),
    st.dictionaries(st.sampled_from(["groups", "queues"]), st.binary(max_size=50)),
)
def test_the_pages_and_the_state_of_a_root_come_back(
    refs: list[PageRef], state: bytes, more: dict[str, bytes]
):
    assert decode_refs(encode_refs(refs, state, more)) == (refs, state, more)


def _row(kind: int, file: bytes) -> Row:
    return Row(5, 9, 3, kind, file, 100, 20, 7, 15, 1, 2, 3, 4)


def test_a_row_says_where_to_read():
    key = (b"t" * 16, 3)
    segment = _row(SEGMENT, b"s" * 16).place(key)
    assert isinstance(segment, Segment)
    assert segment.location.file == paths.segment_file(*key, 5, b"s" * 16)
    assert segment.length == _row(SEGMENT, b"s" * 16).bytes == 120
    staged = _row(STAGED, b"s" * 16).place(key)
    assert isinstance(staged, Chunk)
    assert staged.location.file == paths.staged_file(b"s" * 16)
    assert _row(STAGED, b"s" * 16).bytes == 20
    assert _row(LOG, log_file_id(77)).place(key).location.file == paths.log_file(77)


@pytest.mark.parametrize(
    ("start", "held"),
    [(0, (30, 100)), (10, (30, 100)), (15, (15, 50)), (19, (3, 10)), (20, (0, 0))],
)
def test_a_row_that_is_cut_holds_its_share(start: int, held: tuple[int, int]):
    row = Row(10, 20, 30, SEGMENT, b"", 0, 0, 0, 0, 0, 0, 0, 100)
    assert row.held_from(start) == held


def test_shares_of_steps_add_up_to_the_share_of_a_leap():
    row = Row(3, 20, 11, SEGMENT, b"", 0, 0, 0, 0, 0, 0, 0, 101)
    for first in range(25):
        for second in range(first, 25):
            leap = row.held_from(0)[1] - row.held_from(second)[1]
            steps = row.held_from(0)[1] - row.held_from(first)[1]
            steps += row.held_from(first)[1] - row.held_from(second)[1]
            assert steps == leap
