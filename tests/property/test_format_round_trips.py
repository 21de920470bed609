"""Frames and entries, from values to bytes and back.

Finds a value that is written and read as another one, an Arrow body that no longer stands at a
multiple of 64 (and would be copied), and bytes that pass for a frame though they are none.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format import frame as frames
from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
    decode_entries,
    encode_entry,
)
from kmq_storage.format.group_entries import (
    GroupPlan,
    GroupPlanEntry,
    GroupReleaseEntry,
    Interest,
    PlannedMember,
)
from kmq_storage.format.identity import Identity, decode_identity, encode_identity
from kmq_storage.format.layout_entries import CondemnEntry, GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.records import decode_batch, stored_schema
from tests.support.storage import batch_of, encoded_batch

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
i64 = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
names = st.text(max_size=60)
json_names = st.text(st.characters(codec="utf-8"), max_size=30)

RECORDS = st.builds(
    RecordsEntry,
    topic_id=ids,
    partition=u32,
    rows=u32,
    base_offset=u64,
    position=st.one_of(u32, u64),
    length=u32,
    checksum=u32,
    columns=u16,
    min_timestamp=i64,
    max_timestamp=i64,
    size=st.one_of(u32, u64),
    staged=st.one_of(st.just(b""), ids),
)
KEYS = st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 20))
PLACEMENTS = st.dictionaries(KEYS, st.integers(1, 5), max_size=20)
INTERESTS = st.builds(
    Interest,
    topics=st.lists(json_names, max_size=3).map(tuple),
    pattern=st.one_of(st.none(), json_names.filter(bool)),
    chosen=st.one_of(
        st.none(),
        st.dictionaries(json_names, st.lists(u32, max_size=3).map(tuple), min_size=1, max_size=3),
    ),
)
MEMBERS = st.builds(
    PlannedMember,
    id=json_names,
    name=json_names,
    static=st.booleans(),
    client=json_names,
    assignor=json_names,
    timeout=st.floats(0.1, 1e6),
    interest=INTERESTS,
    joined=u64,
)
PLANS = st.builds(
    GroupPlan,
    members=st.dictionaries(u64, MEMBERS, max_size=3),
    owners=PLACEMENTS,
    targets=PLACEMENTS,
)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    RECORDS,
    st.builds(GroupPlanEntry, group=json_names, generation=u64, plan=PLANS),
    st.builds(
        GroupReleaseEntry,
        group=json_names,
        epoch=u64,
        partitions=st.sets(KEYS, max_size=20).map(sorted).map(tuple),
    ),
    st.builds(ProducerEntry, producer=names, epoch=i64, sequence=i64),
    st.builds(
        GroupOffsetsEntry,
        group=names,
        generation=i64,
        topic_id=ids,
        offsets=st.lists(st.tuples(u32, u64), max_size=5).map(tuple),
    ),
    st.builds(BatchIdEntry, application=names, version=i64),
    st.builds(
        TopicEntry,
        topic_id=ids,
        name=json_names,
        partitions=u32,
        settings=st.dictionaries(json_names, st.one_of(st.none(), st.integers(), json_names)),
    ),
    st.builds(
        GroupEntry,
        group=json_names,
        generation=u32,
        member=json_names,
        client=json_names,
        assignment=st.dictionaries(json_names, st.lists(u32, max_size=3), max_size=3),
    ),
    st.builds(
        SegmentEntry,
        topic_id=ids,
        partition=u32,
        base_offset=u64,
        end_offset=u64,
        rows=u64,
        file_id=ids,
        length=u64,
        footer_position=u64,
        footer_checksum=u32,
        columns=st.integers(0, 2**16 - 1),
        min_timestamp=i64,
        max_timestamp=i64,
        time=i64,
        size=u64,
        old_rows=u64,
        old_size=u64,
        planned_lsn=u64,
    ),
    st.builds(
        TrimEntry,
        topic_id=ids,
        partition=u32,
        start=u64,
        rows=u64,
        size=u64,
        planned_lsn=u64,
    ),
    st.builds(
        CondemnEntry,
        before=u64,
    ),
    st.builds(
        GapEntry,
        topic_id=ids,
        partition=u32,
        start=u64,
        end=u64,
        rows=u64,
        size=u64,
        planned_lsn=u64,
        reason=names,
    ),
)
BODIES = st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=4), max_size=4)


@given(st.lists(ENTRIES, max_size=6))
def test_entries_come_back_as_they_were(entries: list[Entry]):
    directory = b"".join(map(encode_entry, entries))
    assert len(directory) % 8 == 0
    assert list(decode_entries(directory)) == entries


NEWEST_KIND = max(each.kind for each in get_args(Entry) if each is not RecordsEntry)


@given(
    st.lists(ENTRIES, max_size=2),
    st.integers(NEWEST_KIND + 1, 2**16 - 1),
    st.binary(max_size=20),
)
def test_an_unknown_kind_is_refused_and_not_skipped(known: list[Entry], kind: int, payload: bytes):
    strange = kind.to_bytes(2, "little") + bytes(2) + len(payload).to_bytes(4, "little") + payload
    directory = b"".join(map(encode_entry, known)) + strange.ljust(-(-len(strange) // 8) * 8, b"\0")
    with pytest.raises(FormatVersionError, match=f"kind {kind} "):
        list(decode_entries(directory))


@given(ENTRIES, st.integers(1, 2**16 - 1))
def test_an_entry_with_unknown_flags_is_refused(entry: Entry, flags: int):
    raw = bytearray(encode_entry(entry))
    raw[2:4] = flags.to_bytes(2, "little")
    with pytest.raises(FormatVersionError):
        list(decode_entries(bytes(raw)))


def _frame(directory: bytes, bodies: list[pa.Buffer], lsn: int, seed: int) -> bytes:
    placed = frames.layout(len(directory), bodies)
    header = frames.FrameHeader(
        lsn,
        placed.length,
        5,
        b"n" * 16,
        9,
        3,
        0,
        len(directory),
        checksum(directory),
        placed.body_position,
    )
    parts = frames.encode_frame(header, directory, placed, bodies, seed)
    return b"".join(bytes(memoryview(part)) for part in parts)


def _messages(bodies: list[list[bytes]]) -> list[pa.Buffer]:
    return [encoded_batch(batch_of(values).batch, size=0).message for values in bodies]


@given(st.binary(max_size=300), BODIES, st.integers(1, 2**63), u32)
def test_a_frame_comes_back_and_its_arrow_bodies_stand_at_multiples_of_64(
    directory: bytes, bodies: list[list[bytes]], lsn: int, seed: int
):
    messages = _messages(bodies)
    raw = _frame(directory, messages, lsn, seed)
    assert len(raw) % frames.ALIGNMENT == 0
    log = pa.py_buffer(bytes(64) + raw + bytes(200))
    header = frames.decode_header(log, 64, seed)
    assert (header.lsn, header.length) == (lsn, len(raw))
    assert frames.read_directory(log, 64, header) == directory
    placed = frames.layout(len(directory), messages)
    for position, message in zip(placed.positions, messages, strict=True):
        assert raw[position : position + message.size] == message.to_pybytes()
        assert (position + frames.message_metadata_bytes(message)) % frames.ALIGNMENT == 0


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_changed_byte_of_header_directory_or_trailer_is_found(
    directory: bytes, data: st.DataObject
):
    raw = bytearray(_frame(directory, _messages([[b"value"]]), 7, 1))
    checked = [*range(128 + len(directory)), *range(len(raw) - 8, len(raw))]
    place = data.draw(st.sampled_from(checked))
    raw[place] ^= data.draw(st.integers(1, 255))
    log = pa.py_buffer(bytes(raw))
    with pytest.raises(frames.InvalidFrameError):
        frames.read_directory(log, 0, frames.decode_header(log, 0, 1))


def test_a_frame_of_another_store_is_no_frame():
    log = pa.py_buffer(_frame(b"", [], 7, Identity(uuid.UUID(int=1)).seed))
    with pytest.raises(frames.InvalidFrameError, match="header checksum"):
        frames.decode_header(log, 0, Identity(uuid.UUID(int=2)).seed)


def test_a_frame_with_flags_of_a_newer_format_is_refused_as_such():
    raw = bytearray(_frame(b"", [], 7, 1))
    raw[4] = 1
    raw[124:128] = checksum(bytes(raw[:124]), 1).to_bytes(4, "little")
    with pytest.raises(FormatVersionError, match="newer kmq"):
        frames.decode_header(pa.py_buffer(bytes(raw)), 0, 1)


@given(st.integers(0, 300))
def test_a_frame_that_ends_with_its_file_is_cut_nowhere(size: int):
    raw = _frame(b"", _messages([[b"value"]]), 7, 1)
    log = pa.py_buffer(raw[: len(raw) - 1 - size])
    with pytest.raises(frames.InvalidFrameError):
        frames.decode_header(log, 0, 1)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_a_batch_comes_back_without_a_copy(values: list[bytes]):
    batch = batch_of(values).batch
    stored = encoded_batch(batch, size=1)
    assert (stored.min_timestamp, stored.max_timestamp) == (0, len(values) - 1)
    decoded = decode_batch(stored.message, stored_schema(stored.columns), stored.checksum, "here")
    assert decoded == batch
    inside = range(stored.message.address, stored.message.address + stored.message.size)
    assert decoded.column("timestamp").buffers()[1].address in inside


@given(st.data())
def test_a_changed_byte_of_a_batch_is_found_before_arrow_sees_it(data: st.DataObject):
    stored = encoded_batch(batch_of([b"one", b"two"]).batch, size=6)
    raw = bytearray(stored.message.to_pybytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptionError, match="checksum does not match in here"):
        decode_batch(
            pa.py_buffer(bytes(raw)), stored_schema(stored.columns), stored.checksum, "here"
        )


@given(st.uuids(), st.integers(1, 2**40))
def test_an_identity_comes_back(store_id: uuid.UUID, size: int):
    identity = Identity(store_id, size)
    assert decode_identity(encode_identity(identity), "here") == identity
    assert replace(identity, log_file_bytes=size + 1).seed == identity.seed


@given(st.data())
def test_a_changed_byte_of_kmq_json_is_never_another_store(data: st.DataObject):
    raw = bytearray(encode_identity(Identity(uuid.UUID(int=5), 4096)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptionError):
        assert decode_identity(bytes(raw), "here") == Identity(uuid.UUID(int=5), 4096)
