"""What a job of an archive goes on from, and what it refuses before it writes anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kmq_spark as kmq
from kmq_spark import archive
from kmq_spark.archive.beginning import begin
from kmq_spark.datasource import spark_versions
from kmq_spark.lake.record import DELTA, FOLDER, PARQUET, ArchiveRecord
from kmq_storage.errors import IllegalStateError, InvalidRequestError, NotFoundError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "store") as made:
        for name in ("bills", "orders"):
            made.create_topic(name)
        yield made


def _begin(store: kmq.Store, path: Path, *topics: str, fail: bool = True) -> ArchiveRecord:
    return begin(store, str(path), topics, None, else_format=DELTA, fail_on_data_loss=fail)


def test_delta_is_refused_where_spark_has_none_before_anything_is_written(
    store: kmq.Store, tmp_path: Path
):
    path = tmp_path / "lake"
    with pytest.raises(kmq.InvalidRequestError, match="file_format='parquet'"):
        begin(store, str(path), ["orders"], DELTA, else_format=PARQUET, fail_on_data_loss=True)
    assert not path.exists()
    begin(store, str(path), ["orders"], PARQUET, else_format=PARQUET, fail_on_data_loss=True)


def test_a_job_with_fewer_topics_than_before_is_refused_or_leaves_them_where_they_are(
    store: kmq.Store, tmp_path: Path
):
    path = tmp_path / "lake"
    assert _begin(store, path, "orders", "bills").topics == ("bills", "orders")
    with pytest.raises(InvalidRequestError, match="has topics bills, too: name them as well"):
        _begin(store, path, "orders")
    assert _begin(store, path).topics == ("bills", "orders")
    assert _begin(store, path, "orders", fail=False).topics == ("orders",)
    assert _begin(store, path, "orders", "bills").topics == ("bills", "orders")


@pytest.mark.parametrize("place", ["store", "store/lake", "store/segments/x", "link", "x/../store"])
def test_an_archive_inside_of_its_store_is_refused_because_maintenance_would_delete_it(
    store: kmq.Store, tmp_path: Path, place: str
):
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with pytest.raises(InvalidRequestError, match=r"is inside of the store .* choose a place o"):
        _begin(store, tmp_path / place, "orders")
    assert _begin(store, tmp_path / "store-lake", "orders").topics == ("orders",)


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("a::b", [DELTA, PARQUET]),
        ("a%20b", [DELTA]),
        ("a\\b", [DELTA]),
        ("100% of a:b", []),
        ("a%2gb", []),
    ],
)
def test_a_place_that_is_not_read_back_is_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, name: str, formats: list[str]
):
    path = tmp_path / name
    for file_format in (DELTA, PARQUET):
        begin_in = partial(begin, store, str(path / file_format), ["orders"], file_format)
        if file_format in formats:
            with pytest.raises(InvalidRequestError, match="could not be read back, because of '"):
                begin_in(else_format=DELTA, fail_on_data_loss=True)
            assert not (path / file_format).exists()
        else:
            begin_in(else_format=DELTA, fail_on_data_loss=True)
            assert (path / file_format / FOLDER).exists()


def test_a_topic_that_was_deleted_need_not_be_named(store: kmq.Store, tmp_path: Path):
    path = tmp_path / "lake"
    _begin(store, path, "orders", "bills")
    store.delete_topic("bills")
    with pytest.raises(NotFoundError, match=r"\[bills\] doesn't exist.*name the other .*skip-lost"):
        _begin(store, path)
    assert _begin(store, path, "orders").topics == ("orders",)


def test_columns_that_delta_has_not_are_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path
):
    store.create_topic("sums", schema=pa.schema([("a, b", pa.int64())]))
    with pytest.raises(InvalidRequestError, match=r"column 'a, b': Delta has no columns with"):
        _begin(store, tmp_path / "lake", "sums")
    assert not (tmp_path / "lake" / FOLDER).exists()


@pytest.mark.parametrize(
    ("kind", "formats", "told"),
    [
        (pa.duration("us"), [DELTA], "'a': Delta has no durations"),
        (pa.list_(pa.duration("us")), [DELTA], "'a.item': Delta has no durations"),
        (pa.list_(pa.null()), [DELTA], "'a': Delta has no lists or maps of nulls"),
        (pa.map_(pa.string(), pa.list_(pa.null())), [DELTA], "'a': Delta has no lists or maps of"),
        (pa.struct([("b", pa.null())]), [DELTA], "'a': Delta has no structs of nulls alone"),
        (
            pa.struct([("b", pa.struct([("c", pa.null())])), ("d", pa.int8())]),
            [DELTA],
            "'a.b': Delta has no structs of nulls alone",
        ),
        (pa.time64("us"), [DELTA], "'a': Delta has no times of day"),
        (pa.map_(pa.string(), pa.time32("s")), [DELTA], "'a.entries.value': Delta has no times"),
        (pa.dictionary(pa.int8(), pa.time64("us")), [DELTA], "'a': Delta has no times of day"),
        (pa.struct([]), [DELTA, PARQUET], "'a': no file has structs without fields"),
        (pa.month_day_nano_interval(), [DELTA, PARQUET], "'a' is .*, for which Spark has no type"),
        (pa.decimal256(50, 2), [DELTA, PARQUET], "'a' is .*, for which Spark has no type"),
    ],
    ids=str,
)
def test_types_that_files_have_not_are_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, kind: pa.DataType, formats: list[str], told: str
):
    store.create_topic("sums", schema=pa.schema([("a", kind)]))
    for file_format in formats:
        with pytest.raises(InvalidRequestError, match=f"column {told}"):
            _sums(store, tmp_path / "lake", file_format, True)
        assert not (tmp_path / "lake" / FOLDER).exists()
    if PARQUET not in formats:
        assert _sums(store, tmp_path / "lake", PARQUET, True).format == PARQUET


def test_times_of_day_are_refused_before_the_archive_is_there_where_spark_has_none(
    store: kmq.Store, tmp_path: Path
):
    store.create_topic("sums", schema=pa.schema([("a", pa.list_(pa.time64("us")))]))
    for file_format in (DELTA, PARQUET):
        with pytest.raises(InvalidRequestError, match=r"column 'a.item': Spark has times of day"):
            begin(
                store,
                str(tmp_path / "lake"),
                ["sums"],
                file_format,
                else_format=file_format,
                fail_on_data_loss=True,
            )
        assert not (tmp_path / "lake" / FOLDER).exists()


_TWO = pa.schema([("a", pa.int64()), ("A", pa.string())])
_NESTED = pa.schema([("s", pa.list_(pa.struct(list(_TWO))))])


@pytest.mark.parametrize("schema", [_TWO, _NESTED], ids=["columns", "nested"])
def test_columns_that_differ_by_letter_case_alone_are_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, schema: pa.Schema
):
    store.create_topic("sums", schema=schema)
    inside = "s.item." if schema is _NESTED else ""
    for file_format, case_sensitive in ((DELTA, True), (PARQUET, False)):
        who = f"{'Delta' if file_format == DELTA else 'Spark'} does not tell them apart"
        told = f"columns '{inside}a' and '{inside}A': {who}"
        with pytest.raises(InvalidRequestError, match=re.escape(told)):
            _sums(store, tmp_path / "lake", file_format, case_sensitive)
        assert not (tmp_path / "lake" / FOLDER).exists()
    assert _sums(store, tmp_path / "lake", PARQUET, True).format == PARQUET


def _sums(store: kmq.Store, path: Path, file_format: str, case_sensitive: bool) -> ArchiveRecord:
    return begin(
        store,
        str(path),
        ["sums"],
        file_format,
        else_format=file_format,
        fail_on_data_loss=True,
        case_sensitive=case_sensitive,
        times_of_day=True,
    )


@pytest.mark.parametrize("name", ["kmq_Day", "batch"])
def test_a_column_with_the_name_of_a_folder_is_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, name: str
):
    store.create_topic("sums", schema=pa.schema([(name, pa.date32())]))
    with pytest.raises(InvalidRequestError, match=f"column '{name}' has the name of a column that"):
        _sums(store, tmp_path / "lake", PARQUET, True)
    assert not (tmp_path / "lake" / FOLDER).exists()
    assert _sums(store, tmp_path / "lake", DELTA, True).format == DELTA


@pytest.mark.parametrize(
    ("name", "schema"),
    [("t" * 235 + "%" * 5, None), ("t" * 249, pa.schema([("id", pa.int64())]))],
    ids=["percents", "typed"],
)
def test_a_topic_whose_folder_no_file_system_takes_is_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, name: str, schema: pa.Schema | None
):
    store.create_topic(name, schema=schema)
    with pytest.raises(InvalidRequestError, match="256 bytes of the 255 that a file system"):
        _begin(store, tmp_path / "lake", name)
    assert not (tmp_path / "lake" / FOLDER).exists()
    store.create_topic(name[1:], schema=schema)
    assert _begin(store, tmp_path / "lake", name[1:]).topics == (name[1:],)


def test_topics_of_different_schemas_are_refused_before_a_record_is_there(
    store: kmq.Store, tmp_path: Path
):
    path, columns = tmp_path / "lake", [pa.field("id", pa.int64()), pa.field("name", pa.string())]
    store.create_topic("short", schema=pa.schema(columns[:1]))
    store.create_topic("long", schema=pa.schema(columns))
    with pytest.raises(InvalidRequestError, match="topics long and short have different schemas"):
        _begin(store, path, "short", "long")
    assert not (path / FOLDER).exists()
    store.alter_topic("short", schema=pa.schema(columns))
    assert _begin(store, path, "short", "long").typed


def test_a_spark_that_reads_no_streams_is_refused_before_the_archive_is_there(
    store: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(spark_versions, "_STREAMS_SINCE", (99, 0))
    spark, path = cast("SparkSession", None), tmp_path / "lake"  # it is not even asked
    with pytest.raises(IllegalStateError, match="can't read a stream from kmq"):
        archive.start(spark, store.url, path, topics=["orders"])
    assert not path.exists()
