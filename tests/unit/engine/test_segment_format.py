"""Segments as bytes: what goes in comes out, each byte is proven, and any Arrow tool opens one."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.records import SEALED, TIMESTAMP_TYPE, decode_batch, stored_schema
from kmq_storage.format.segment import (
    SealedBatch,
    SegmentEncoder,
    SegmentFooter,
    decode_footer,
    segment_schema,
)

FILE_ID = bytes(range(16))
SCHEMA = segment_schema(stored_schema(SEALED), "t", 3, 100)


def _batch(offsets: list[int], *, end: int) -> SealedBatch:
    columns = {
        "offset": offsets,
        "timestamp": [n * 10 for n in offsets],
        "key": [b"key %d" % n if n % 3 else None for n in offsets],
        "value": [b"value %d" % n * 20 if n % 5 else None for n in offsets],
        "headers": [[{"key": "h", "value": b"%d" % n}] if n % 2 else None for n in offsets],
        "properties": [[("p", {"int": n}), ("q", {"text": "x"})] for n in offsets],
    }
    schema = stored_schema(SEALED)
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    times = columns["timestamp"] or [0]
    return SealedBatch(offsets[0] if offsets else end, end, batch, min(times), max(times), 7)


def _encoded(
    batches: list[SealedBatch], compression: str | None = None, most: int | None = None
) -> tuple[SegmentEncoder, pa.Buffer]:
    encoder = SegmentEncoder(SCHEMA, FILE_ID, most=most or len(batches), compression=compression)
    pieces = [bytes(memoryview(piece)) for piece in encoder.buffers(iter(batches))]
    contents = pa.py_buffer(b"".join(pieces))
    assert contents.size == encoder.length
    return encoder, contents


def _decoded(encoder: SegmentEncoder, contents: pa.Buffer) -> SegmentFooter:
    return decode_footer(
        contents.slice(encoder.footer_position),
        "file",
        FILE_ID,
        columns=SEALED,
        expected=encoder.footer_checksum,
    )


BATCHES = [_batch([100, 101, 102], end=103), _batch([105, 110], end=120), _batch([120], end=121)]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("most", [3, 20])
def test_batches_come_back_as_they_were(compression: str | None, most: int):
    encoder, contents = _encoded(BATCHES, compression, most)
    chunks = _decoded(encoder, contents).chunks
    assert [(chunk.base_offset, chunk.end_offset, chunk.rows) for chunk in chunks] == [
        (100, 103, 3),
        (105, 120, 2),
        (120, 121, 1),
    ]
    for chunk, each in zip(chunks, BATCHES, strict=True):
        message = contents.slice(chunk.location.position, chunk.location.length)
        batch = decode_batch(message, stored_schema(SEALED), chunk.checksum, "file")
        batch.validate(full=True)
        assert batch == each.batch
        assert (chunk.min_timestamp, chunk.max_timestamp) == (
            each.min_timestamp,
            each.max_timestamp,
        )
    assert (encoder.rows, encoder.size) == (6, 21)
    assert (encoder.min_timestamp, encoder.max_timestamp) == (1000, 1200)


def test_uncompressed_bodies_stand_where_they_can_be_mapped():
    encoder, contents = _encoded(BATCHES)
    for chunk in _decoded(encoder, contents).chunks:
        assert chunk.location.position % 8 == 0


def test_a_segment_without_a_record_is_a_file_too():
    encoder, contents = _encoded([], most=4)
    assert _decoded(encoder, contents).chunks == ()
    opened = pa.ipc.open_file(contents)
    assert (opened.num_record_batches, opened.schema.names) == (0, stored_schema(SEALED).names)


def test_the_footer_says_it_in_fixed_width_text():
    encoder, contents = _encoded(BATCHES, most=5)
    text = pa.ipc.open_file(contents).metadata[b"kmq.batches"].decode()
    file_id, head, facts, parts = text.rstrip(".").split(":")
    assert (file_id, len(head)) == (FILE_ID.hex(), 8)
    assert (len(facts), len(parts)) == (3 * 120, 3 * 7 * 16)
    assert len(text) == len(f"{file_id}:{head}::") + 5 * (120 + 7 * 16)
    assert int(head, 16) == checksum(contents.slice(0, _first(encoder, contents)))


def _first(encoder: SegmentEncoder, contents: pa.Buffer) -> int:
    return _decoded(encoder, contents).chunks[0].location.position


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_every_byte_is_under_one_checksum(compression: str | None):
    encoder, contents = _encoded(BATCHES, compression)
    footer = _decoded(encoder, contents)
    position = footer.chunks[0].location.position
    assert checksum(contents.slice(0, position)) == footer.head_checksum
    for chunk in footer.chunks:
        assert chunk.location.position == position
        position += chunk.location.length
    assert position == encoder.footer_position


def test_a_changed_byte_of_the_footer_is_found():
    encoder, contents = _encoded(BATCHES)
    raw, rng = contents.to_pybytes(), random.Random(1)
    for at in rng.sample(range(encoder.footer_position, len(raw)), 50):
        changed = bytearray(raw)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptionError, match="footer checksum"):
            _decoded(encoder, pa.py_buffer(bytes(changed)))


def test_another_segment_under_its_name_is_found():
    encoder, contents = _encoded(BATCHES)
    footer = contents.slice(encoder.footer_position)
    with pytest.raises(CorruptionError, match="another segment than its name says"):
        decode_footer(footer, "file", b"x" * 16, columns=SEALED, expected=encoder.footer_checksum)


def test_more_batches_than_was_said_are_refused_before_a_commit():
    with pytest.raises(AssertionError, match="more batches"):
        _encoded(BATCHES, most=2)


# --- any Arrow tool ---------------------------------------------------------------------


@pytest.fixture(params=[None, "lz4", "zstd"])
def segment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A segment of 1,000 records that a store sealed."""
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t", compression=request.param)
        with store.producer() as producer:
            for n in range(1_000):
                producer.send("t", b"value %d" % n, key=b"%d" % n, headers={"n": b"%d" % n})
        store.seal()
    (file,) = (tmp_path / "store" / paths.SEGMENT_FOLDER).rglob("*.arrow")
    return file


COLUMNS = ["offset", "timestamp", "key", "value", "headers", "properties"]


def test_plain_pyarrow_opens_a_segment(segment: Path):
    with pa.memory_map(str(segment)) as source, pa.ipc.open_file(source) as opened:
        table = opened.read_all()
        metadata = opened.schema.metadata
    assert table.column_names == COLUMNS
    assert table["offset"].to_pylist() == list(range(1_000))
    assert table["value"][999].as_py() == b"value 999"
    assert metadata == {
        b"kmq.format": b"1",
        b"kmq.topic": b"t",
        b"kmq.partition": b"0",
        b"kmq.base_offset": b"0",
    }


def test_polars_opens_a_segment(segment: Path):
    frame = pl.read_ipc(segment)
    assert frame.height == 1_000
    assert frame["value"][999] == b"value 999"
    assert frame["headers"][999].to_list() == [{"key": "n", "value": b"999"}]
    assert frame["offset"].sum() == 499_500


def test_duckdb_opens_a_segment(segment: Path):
    import pyarrow.dataset as ds

    records = ds.dataset(segment, format="ipc")
    with duckdb.connect() as database:
        database.register("records", records)
        found = database.execute("select count(*), max(key::text) from records").fetchone()
    assert found == (1_000, "999")


def test_pandas_opens_a_segment(segment: Path):
    import pandas as pd

    frame = pd.read_feather(segment, columns=["offset", "timestamp", "value"])
    assert frame["offset"].tolist() == list(range(1_000))
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
    assert TIMESTAMP_TYPE.tz == "UTC"
