"""Records out of archives: by offset and by time, in both formats."""

from __future__ import annotations

import tracemalloc
import uuid
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from shutil import rmtree

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from kmq_spark.lake.batches import finish_batch
from kmq_spark.lake.files import check_readable
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.reading import Archive, open_archive
from kmq_spark.lake.record import DELTA, PARQUET
from kmq_storage.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tests.support.damage import flip
from tests.support.s3 import S3Server
from tests.unit.archive.made import ORDERS, STORE, archive, minute, records, upload

COLUMNS = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("later", pa.int64())])
FORMATS = (DELTA, PARQUET)


def _values(made: Archive, partition: int, start: int, end: int) -> list[bytes]:
    found = made.range("orders", ORDERS, partition, start, end).read(COLUMNS)
    return [value for batch in found for value in batch.column("value").to_pylist()]


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, moto: S3Server) -> ArchivePlace | None:
    """Where an archive is uploaded to; None when it stays where it is."""
    return ArchivePlace(moto.new_url(), moto.options()) if request.param == "s3" else None


@pytest.fixture(params=FORMATS)
def orders(request: pytest.FixtureRequest, place: ArchivePlace | None, tmp_path: Path) -> Archive:
    batches = [
        pa.concat_tables([records(0, range(n, n + 10)), records(1, range(n, n + 5))])
        for n in (0, 10, 20)
    ]
    made = archive(tmp_path / "archive", request.param, *batches)
    if place is None:
        return open_archive(made, STORE)
    upload(Path(made), place)
    return open_archive(place.url, STORE, place.storage_options)


def test_a_range_gives_the_records_of_its_partition_in_offset_order(orders: Archive):
    assert _values(orders, 0, 8, 22) == [f"0/{n}".encode() for n in range(8, 22)]


def test_offsets_that_were_never_there_give_nothing(orders: Archive):
    assert _values(orders, 1, 5, 10) == []


def test_a_column_that_no_file_has_is_null(orders: Archive):
    [batch] = orders.range("orders", ORDERS, 0, 3, 4).read(COLUMNS)
    assert batch.select(COLUMNS.names).to_pydict() == {
        "value": [b"0/3"],
        "offset": [3],
        "later": [None],
    }


def test_records_come_in_order_when_their_offsets_are_not_asked_for(orders: Archive):
    values = pa.schema([("value", pa.binary())])
    [batch] = orders.range("orders", ORDERS, 0, 3, 5).read(values)
    assert batch.column("value").to_pylist() == [b"0/3", b"0/4"]


def test_files_that_delta_rs_has_rewritten_are_read_as_others(tmp_path: Path):
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[("a", b"1")], None, []] * 2, pa.list_(header))
    batch = pa.concat_tables([records(0, range(3)), records(1, range(3))])
    made = archive(tmp_path / "archive", DELTA, batch.append_column("headers", headers))
    DeltaTable(made).delete("offset = 1")
    wanted = pa.schema([("value", pa.binary()), ("headers", headers.type)])
    found = open_archive(made, STORE).range("orders", ORDERS, 0, 0, 3).read(wanted)
    rows = pa.Table.from_batches(found).select(wanted.names).to_pylist()
    assert rows == [
        {"value": b"0/0", "headers": [{"key": "a", "value": b"1"}]},
        {"value": b"0/2", "headers": []},
    ]


@pytest.mark.parametrize("file_format", FORMATS)
def test_records_that_stand_in_another_order_come_by_offset(tmp_path: Path, file_format: str):
    mixed = pa.concat_tables([records(0, range(start, 10, 3)) for start in (2, 0, 1)])
    batches = [pa.concat_tables([records(1, range(1)), records(0, range(10, 12))]), mixed]
    made = archive(tmp_path / "archive", file_format, *batches)
    assert _values(open_archive(made, STORE), 0, 1, 12) == [b"0/%d" % n for n in range(1, 12)]


def test_of_a_row_group_only_some_of_it_is_in_memory(tmp_path: Path):
    large = pa.array([Random(n).randbytes(1_000) for n in range(30_000)])
    batch = records(0, range(30_000)).drop_columns("value").append_column("value", large)
    made = open_archive(archive(tmp_path / "large", PARQUET, batch), STORE)
    few = made.range("orders", ORDERS, 0, 29_990, 30_000)
    default, counted = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        assert sum(part.num_rows for part in few.read(COLUMNS)) == 10
        _, of_python = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert large.nbytes >= 30_000_000
    assert counted.max_memory() < 20_000_000
    assert of_python < 5_000_000


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_value_that_the_asked_for_type_can_not_hold_is_refused_by_name(
    tmp_path: Path, file_format: str
):
    batch = records(0, range(3)).append_column("n", pa.array([1, 2, 2**40]))
    made = open_archive(archive(tmp_path / "archive", file_format, batch), STORE)
    narrow = pa.schema([("n", pa.int32())])
    [found] = made.range("orders", ORDERS, 0, 0, 2).read(narrow)
    assert found["n"].to_pylist() == [1, 2]
    with pytest.raises(InvalidRequestError, match="column 'n' holds a value that Spark's int32"):
        list(made.range("orders", ORDERS, 0, 0, 3).read(narrow))


def test_only_files_that_can_hold_the_range_are_opened(orders: Archive):
    assert len(orders.files) == 3
    assert len(orders.range("orders", ORDERS, 0, 12, 18).files) == 1


@pytest.mark.parametrize("file_format", FORMATS)
def test_between_two_files_only_what_is_long_beside_them_is_absent(
    tmp_path: Path, file_format: str
):
    spans = [range(5), range(7, 12), range(15, 20)]  # one may lack two rows, but not three
    path = archive(tmp_path / "archive", file_format, *(records(0, each) for each in spans))
    found = open_archive(path, STORE)
    assert found.range("orders", ORDERS, 0, 0, 20).absent() == [(12, 15)]
    assert found.range("orders", ORDERS, 0, 0, 21).absent() == [(12, 15), (20, 21)]
    assert found.range("orders", ORDERS, 1, 0, 20).absent() == [(0, 20)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_records_that_came_late_are_gone_with_their_day(tmp_path: Path, file_format: str):
    second, third = (pa.array([date(2026, 1, n)] * 3) for n in (2, 3))
    spans = [(range(3), second), (range(6, 9), second), (range(9, 12), third)]
    spans += [(range(15, 18), third)]
    batches = [records(0, each).set_column(1, "day", days) for each, days in spans]
    path = archive(tmp_path / "archive", file_format, *batches)
    found = open_archive(path, STORE).range("orders", ORDERS, 0, 0, 18)
    assert found.absent() == [(3, 6), (12, 15)]
    assert found.absent(days_are_gone=True) == [(12, 15)]
    assert found.between(0, 8).absent(days_are_gone=True) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_what_the_files_hide_by_compressing_it_is_weighed(tmp_path: Path, file_format: str):
    alike = pa.array([b"x" * 10_000] * 500)
    batch = records(0, range(500)).drop_columns("value").append_column("value", alike)
    made = open_archive(archive(tmp_path / "alike", file_format, batch), STORE)
    assert sum(each.bytes for each in made.files) < 100_000
    assert made.range("orders", ORDERS, 0, 0, 500).bytes >= 5_000_000
    assert made.range("orders", ORDERS, 0, 0, 5).bytes >= 50_000


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_with_values_beyond_pythons_calendar_are_in_nobodys_way(
    tmp_path: Path, file_format: str
):
    far = pa.array([-(2**62), 0, 2**62]).cast(pa.timestamp("us", "UTC"))
    batch = records(0, range(3)).append_column("far", far)
    made = open_archive(archive(tmp_path / "far", file_format, batch), STORE)
    [found] = made.range("orders", ORDERS, 0, 0, 3).read(pa.schema([("far", far.type)]))
    assert found["far"].equals(far)


def test_a_delta_table_whose_files_dont_say_what_counts_is_not_taken_for_readable(tmp_path: Path):
    path = tmp_path / "archive"
    batch = records(0, range(3))
    write_deltalake(path, batch, configuration={"delta.enableDeletionVectors": "true"})
    for place in (ArchivePlace(str(tmp_path / "nothing yet")), _archived(tmp_path / "whole")):
        check_readable(place)
    with pytest.raises(InvalidRequestError, match=r"Delta table with deletionVectors"):
        check_readable(ArchivePlace(str(path)))


def _archived(path: Path) -> ArchivePlace:
    return ArchivePlace(archive(path, DELTA, records(0, range(3))))


def test_parts_of_a_range_cover_it_once(orders: Archive):
    whole = orders.range("orders", ORDERS, 0, 0, 30)
    parts = [whole.between(0, 7), whole.between(7, 11), whole.between(11, 30)]
    assert [len(part.files) for part in parts] == [1, 2, 2]
    offsets = [n for part in parts for b in part.read(COLUMNS) for n in b["offset"].to_pylist()]
    assert offsets == list(range(30))


def test_the_first_offset_since_a_time_is_found_per_partition(orders: Archive):
    assert orders.first_since("orders", ORDERS, [0, 1], minute(13)) == {0: 13, 1: 13}
    assert orders.first_since("orders", ORDERS, [0, 1], minute(27)) == {0: 27}


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_record_of_the_first_moment_of_a_calendar_is_found_by_its_time(
    tmp_path: Path, file_format: str
):
    first = datetime(1, 1, 1, tzinfo=UTC)
    times = pa.array([first, minute(0)], pa.timestamp("us", "UTC"))
    batch = records(0, range(2)).drop_columns("timestamp").append_column("timestamp", times)
    made = open_archive(archive(tmp_path / "archive", file_format, batch), STORE)
    assert made.first_since("orders", ORDERS, [0], first) == {0: 0}


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_earlier_topic_of_the_same_name_is_not_mixed_in(tmp_path: Path, file_format: str):
    earlier = uuid.UUID(int=6)
    path = archive(
        tmp_path / "archive",
        file_format,
        records(0, range(5), topic_id=earlier),
        records(0, range(2, 4)),
    )
    made = open_archive(path, STORE)
    assert _values(made, 0, 0, 10) == [b"0/2", b"0/3"]
    assert made.first_since("orders", ORDERS, [0], minute(0)) == {0: 2}


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_topic_whose_name_needs_escaping_in_paths_is_found(tmp_path: Path, file_format: str):
    path = archive(tmp_path / "archive", file_format, records(0, range(3), topic="a%20b.c"))
    made = open_archive(path, STORE)
    [batch] = made.range("a%20b.c", ORDERS, 0, 0, 3).read(COLUMNS)
    assert batch.num_rows == 3


def _mark(folder: Path, number: int) -> Path:
    return folder / f"batch=cccccccc-{number:010d}" / "_kmq_complete"


def test_a_batch_that_was_not_written_to_its_end_is_not_read(tmp_path: Path):
    path = archive(tmp_path / "archive", PARQUET, records(0, range(3)), records(0, range(3, 6)))
    _mark(Path(path), 1).unlink()
    assert _values(open_archive(path, STORE), 0, 0, 6) == [b"0/0", b"0/1", b"0/2"]


def test_a_batch_that_isnt_whole_below_a_later_one_is_missing(tmp_path: Path):
    path = archive(tmp_path / "archive", PARQUET, records(0, range(3)), records(0, range(3, 6)))
    _mark(Path(path), 0).unlink()
    assert open_archive(path, STORE).missing == ("batch=cccccccc-0000000000",)


def test_a_batch_below_a_later_or_a_finished_one_is_missing_unless_it_is_one_of_the_first(
    tmp_path: Path,
):
    batches = [records(0, range(first, first + 3)) for first in (0, 3, 6)]
    path = Path(archive(tmp_path / "archive", PARQUET, *batches))
    rmtree(_mark(path, 1).parent)
    assert open_archive(str(path), STORE).missing == ("batch=cccccccc-0000000001",)
    rmtree(_mark(path, 0).parent)
    assert open_archive(str(path), STORE).missing == ()
    commits = path / "_kmq" / ("c" * 32) / "commits"
    commits.mkdir(parents=True)
    for name in ("2", "3", ".3.crc"):
        (commits / name).touch()
    assert open_archive(str(path), STORE).missing == ("batch=cccccccc-0000000003",)


def test_a_file_of_a_batch_is_missing_unless_it_is_of_the_first_days(tmp_path: Path):
    batch = pa.concat_tables([records(0, range(3)), records(1, range(2), topic="paid")])
    days = pa.array([date(2026, 1, n) for n in (1, 2, 3, 1, 1)])
    place = ArchivePlace(archive(tmp_path / "archive", PARQUET, batch.set_column(1, "day", days)))
    found = open_archive(place.url, STORE)
    assert found.missing == ()
    middle, first = (
        next(tmp_path.glob(f"archive/*/topic=orders/day=2026-01-0{n}")) for n in (2, 1)
    )
    rmtree(middle)
    (lost,) = open_archive(place.url, STORE).missing
    assert lost.startswith("batch=cccccccc-0000000000/topic=orders/day=2026-01-02/")
    rmtree(first)
    assert open_archive(place.url, STORE).missing == ()


def test_a_batch_with_the_mark_of_spark_alone_is_read(tmp_path: Path):
    path = archive(tmp_path / "archive", PARQUET, records(0, range(3)))
    _mark(Path(path), 0).rename(_mark(Path(path), 0).with_name("_SUCCESS"))
    assert len(_values(open_archive(path, STORE), 0, 0, 3)) == 3


@pytest.mark.parametrize("name", ["lake[1]", "la*ke?", "{lake}", "50%25 lake+ä"])
def test_a_parquet_archive_is_found_whatever_its_name(tmp_path: Path, name: str):
    path = archive(tmp_path / name, PARQUET, records(0, range(3)), records(0, range(3, 6)))
    assert len(_values(open_archive(path, STORE), 0, 0, 6)) == 6


def test_a_batch_whose_files_are_elsewhere_is_not_taken_for_written(
    place: ArchivePlace | None, tmp_path: Path
):
    place = place or ArchivePlace(str(tmp_path))
    finish_batch(place, "batch=cccccccc-0000000000", lambda: True)
    with pytest.raises(IllegalStateError, match="to one place"):
        finish_batch(place, "batch=cccccccc-0000000001", lambda: False)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_that_went_after_a_read_was_planned_is_named_with_the_way_out(
    tmp_path: Path, file_format: str
):
    made = archive(tmp_path / "archive", file_format, records(0, range(10)))
    planned = open_archive(made, STORE).range("orders", ORDERS, 0, 0, 10)
    (tmp_path / "archive" / planned.files[0].path).unlink()
    with pytest.raises(UnavailableError, match=r"is gone: .* VACUUM.*, load the read again"):
        list(planned.read(COLUMNS))


def test_a_damaged_file_is_named(orders: Archive):
    planned = orders.range("orders", ORDERS, 0, 0, 10)
    system, root = orders.place.file_system()
    system.pipe_file(f"{root}/{planned.files[0].path}", b"PAR1 and no more")
    with pytest.raises(CorruptionError, match=r"file .*parquet of archive .* is damaged: "):
        list(planned.read(COLUMNS))


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_byte_that_changed_in_a_file_is_found(tmp_path: Path, compression: str):
    path = tmp_path / "archive"
    made = open_archive(archive(path, PARQUET, records(0, range(10))), STORE)
    file = path / made.files[0].path
    table = pyarrow.parquet.read_table(file, partitioning=None)
    pyarrow.parquet.write_table(
        table, file, compression=compression, use_dictionary=False, write_page_checksum=True
    )
    column = pyarrow.parquet.read_metadata(file).row_group(0).column(4)
    assert column.path_in_schema == "value"
    # The end of the column's only page is in its last values.
    flip(file, column.data_page_offset + column.total_compressed_size - 2)
    with pytest.raises(CorruptionError, match="is damaged: "):
        _values(made, 0, 0, 10)


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_archive_that_lost_all_files_is_not_read_as_empty(tmp_path: Path, file_format: str):
    made = open_archive(archive(tmp_path / "archive", file_format), STORE)
    with pytest.raises(IllegalStateError, match="none of the records"):
        made.range("orders", ORDERS, 0, 0, 3)


def test_no_archive_and_the_archive_of_another_store_are_refused(tmp_path: Path):
    with pytest.raises(NotFoundError, match="Archive"):
        open_archive(str(tmp_path / "nothing"), STORE)
    path = archive(tmp_path / "archive", DELTA)
    with pytest.raises(InvalidRequestError, match=str(STORE)):
        open_archive(path, uuid.UUID(int=2))
