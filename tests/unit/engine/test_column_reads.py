"""Reading some columns of sealed records: nothing else is fetched, proven or decompressed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.checksum import checksum
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.format.packing import PART, packed, parts_of
from kmq_storage.format.projection import read_columns
from kmq_storage.format.typed import stored_columns
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Chunk, Location
from kmq_storage.objects.bucket_files import BucketFiles
from tests.support.arrow_data import tables
from tests.support.counting_bucket import CountingBucket
from tests.support.damage import flip
from tests.support.wide_tables import check_damage_is_told, check_others_are_read, wide_table

ROWS = 1_000
COMPRESSIONS = pytest.mark.parametrize("compression", [None, "lz4", "zstd"])


def _sealed(store: kmq.Store, table: pa.Table, compression: str | None = None) -> None:
    store.create_topic("t", schema=table.schema, compression=compression)
    with store.producer() as producer:
        producer.send_arrow("t", table).result(10)
    store.seal()


def _chunk(store: kmq.Store) -> Chunk:
    """The only sealed batch."""
    topic = store.log.refresh().topic("t")
    (place,) = topic.places(0, 0, ROWS)
    (chunk,) = ChunkReader(store.log.files).chunks(place, "t", 0)
    return chunk


@pytest.fixture(params=[None, "lz4", "zstd"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with one sealed batch of the columns c0 to c4."""
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        _sealed(store, wide_table(5, 1, ROWS), request.param)
    return tmp_path / "store"


def _damage(folder: Path, column: int) -> None:
    with kmq.open(folder, read_only=True) as store:
        chunk = _chunk(store)
    *_, part = parts_of(chunk, (column,))
    (file,) = (folder / paths.SEGMENT_FOLDER).rglob("*.arrow")
    flip(file, chunk.location.position + (part.start + part.end) // 2)


def test_damage_in_a_column_that_is_not_read_hurts_nobody(folder: Path):
    _damage(folder, 3)
    check_others_are_read(folder, wide_table(5, 1, ROWS))


@pytest.mark.parametrize("columns", [["c3"], ["c1", "c3"], None])
def test_damage_in_a_column_that_is_read_is_an_error(folder: Path, columns: list[str] | None):
    _damage(folder, 3)
    check_damage_is_told(folder, columns, ROWS)


def test_verify_looks_at_every_column(folder: Path):
    _damage(folder, 3)
    with kmq.open(folder, read_only=True) as store:
        (damage,) = store.verify(deep=True).damage
    assert (damage.topic, damage.start, damage.end) == ("t", 0, ROWS)


@pytest.mark.parametrize("typed", [False, True])
def test_columns_that_follow_from_the_place_alone_can_be_read_alone(tmp_path: Path, typed: bool):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t", schema=pa.schema([("n", pa.int64())]) if typed else None)
        with store.producer() as producer:
            for n in range(9):
                producer.send("t", {"n": n} if typed else b"%d" % n)
        store.seal()
        name = "_partition" if typed else "partition"
        assert store.read("t", columns=[name]).read_all()[name].to_pylist() == [0] * 9


def test_records_from_before_and_after_sealing_come_together(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        producer.send("t", b"sealed", key=b"k", headers={"h": b"1"}).result(10)
        store.seal()
        producer.send("t", b"not yet", key=b"l").result(10)
        found = store.read("t", columns=["headers", "key"]).read_all()
        instants = store.read("t", columns=["timestamp"]).read_all()["timestamp"]
    assert found["key"].to_pylist() == [b"k", b"l"]
    assert found["headers"].to_pylist() == [[{"key": "h", "value": b"1"}], None]
    assert instants.null_count == 0


def test_after_compaction_offsets_are_read_though_nobody_asked_for_them(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", cleanup="compact")
        for n in range(10):
            producer.send("t", b"%d" % n, key=b"%d" % (n % 3)).result(10)
        store.compact("t")
        part = store.read("t", columns=["value"], start={0: 8}).read_all()
    assert part["value"].to_pylist() == [b"8", b"9"]


# --- buckets ----------------------------------------------------------------------------


@pytest.fixture
def bucket() -> Iterator[tuple[kmq.Store, CountingBucket]]:
    """A sealed batch of 6 columns of 1.2 MB each, and its bucket."""
    counting = CountingBucket(f"memory-bucket://{uuid.uuid4().hex}")
    identity = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))
    writer = kmq.Store(BucketLog(BucketFiles(counting), identity, SYSTEM), maintenance=False)
    _sealed(writer, wide_table(6, 75, ROWS))
    reader = kmq.Store(BucketLog(BucketFiles(counting), identity, SYSTEM), maintenance=False)
    reader.log.refresh()
    counting.asked.clear()
    yield reader, counting
    reader.close()


def _asked(counting: CountingBucket, chunk: Chunk) -> list[tuple[int, int]]:
    """The ranges of a batch that were fetched apart from the first MiB of its file."""
    at = chunk.location
    return sorted(
        (each.start - at.position, (each.length or 0) + each.start - at.position)
        for each in counting.asked
        if each.name == at.file and 0 < each.start < at.position + at.length
    )


def test_of_a_bucket_only_the_wanted_columns_are_fetched(
    bucket: tuple[kmq.Store, CountingBucket],
):
    store, counting = bucket
    found = store.read("t", columns=["c4", "c2"]).read_all()
    assert found.to_pydict() == wide_table(6, 75, ROWS).select(["c4", "c2"]).to_pydict()
    chunk = _chunk(store)
    head, *wanted = parts_of(chunk, (2, 4, len(chunk.parts) // PART.size - 2))
    assert _asked(counting, chunk) == [(part.start, part.end) for part in wanted]
    assert head.end - head.start < 4_096


def test_of_a_bucket_neighbours_are_fetched_with_one_request(
    bucket: tuple[kmq.Store, CountingBucket],
):
    store, counting = bucket
    store.read("t", columns=[f"c{n}" for n in range(6)]).read_all()
    chunk = _chunk(store)
    assert _asked(counting, chunk) == [(0, chunk.location.length)]


# --- bytes ------------------------------------------------------------------------------


class _Written:
    """What pyarrow writes into a file."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[pa.Buffer] = []

    def write(self, data: pa.Buffer) -> int:
        self.pieces.append(data)
        return len(data)

    def flush(self) -> None:
        pass


def _pieces(batch: pa.RecordBatch, compression: str | None) -> list[pa.Buffer]:
    written = _Written()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(pa.PythonFile(written, mode="w"), batch.schema, options=options) as out:
        out.write_batch(batch.slice(0, 0))  # after the schema
        written.pieces.clear()
        out.write_batch(batch)
        return list(written.pieces)


@COMPRESSIONS
@given(tables(), st.data())
def test_any_columns_of_any_types_come_back_alone(
    compression: str | None, table: pa.Table, data: st.DataObject
):
    assume(table.num_rows)  # a stored batch has a record, and each a timestamp
    schema = pa.schema([*stored_columns(table.schema), ("_offset", pa.int64())])
    batch = pa.RecordBatch.from_pylist(table.to_pylist(), schema)
    message = packed(_pieces(batch, compression), schema)
    contents = pa.py_buffer(b"".join(map(bytes, message.buffers)))
    assert (contents.size, checksum(contents)) == (message.length, message.checksum)
    assert pa.ipc.read_record_batch(contents, schema).equals(batch)
    wanted = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(schema))), min_size=1))))
    where = Location("f", 0, contents.size)
    chunk = Chunk(0, 1, 1, where, message.checksum, 0, 0, 0, 0, message.parts)
    kept = bytearray(contents.size)
    for part in parts_of(chunk, wanted):
        proven = contents.slice(part.start, part.end - part.start)
        assert checksum(proven, part.before) == part.behind
        kept[part.start : part.end] = proven.to_pybytes()
    alone = read_columns(pa.py_buffer(bytes(kept)), schema, wanted, "f")
    assert alone.equals(batch.select(list(wanted)))


def test_columns_of_nulls_are_in_a_segment_once(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [b"%7d" % n for n in range(40_000)])
        store.seal()
    (file,) = (tmp_path / "store" / paths.SEGMENT_FOLDER).rglob("*.arrow")
    # Offset, timestamp, value with its place, the nulls of key, those of headers and properties.
    assert file.stat().st_size < 40_000 * (8 + 8 + 11 + 4.2 + 4.2) + 8_000
    table = pa.ipc.open_file(file).read_all()
    table.validate(full=True)
    assert table["headers"].null_count == table["properties"].null_count == 40_000


def test_a_typed_column_may_have_the_name_of_any_other_topics_column(tmp_path: Path):
    names = ["offset", "timestamp", "key", "value", "headers", "properties", "topic", "partition"]
    rows = pa.table({name: range(at, at + 10_000) for at, name in enumerate(names)})
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", schema=rows.schema)
        producer.send_arrow("t", rows).result(10)
        for make in (None, store.seal, lambda: store.compact("t")):
            if make is not None:
                make()
            for name in names:
                for others in ([], ["_offset", "_key"]):
                    found = store.read("t", columns=[name, *others]).read_all()
                    assert found[name].combine_chunks() == rows[name].combine_chunks(), name
