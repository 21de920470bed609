"""The archiving job with a real Spark and a real Delta: exactly once, and one DataFrame of all."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from kmq_spark import archive
from kmq_spark.archive.job import _laid_out
from kmq_spark.archive.reach import check_reachable
from kmq_spark.lake.record import PARQUET, ArchiveRecord
from kmq_storage.errors import DataLossError, IllegalStateError, InvalidRequestError
from kmq_storage.objects.open import open_files
from tests.spark.running import Collector, forget_last_commit, load, patiently, run
from tests.spark.shop import Place, Shop
from tests.support.s3 import S3Server
from tests.support.spark import require_delta

FORMATS = ("delta", "parquet")

RECORD = ArchiveRecord(
    store_id="", format=PARQUET, group="", checkpoint="", topics=("orders",), typed=False
)

_archive = partial(patiently, archive.run)


@pytest.fixture(autouse=True)
def _delta(spark: SparkSession) -> None:
    require_delta(spark)


def _send(shop: Shop, count: int = 5) -> list[Place]:
    return [place for partition in range(3) for place in shop.send("orders", partition, count)]


def _places(frame: DataFrame) -> Counter[Place]:
    return Counter(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def _whole(spark: SparkSession, shop: Shop, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("kmq").option("subscribe", "orders").option("archive", str(path))
    return reader.options(**options).load(shop.url)


@pytest.mark.parametrize("file_format", FORMATS)
def test_history_and_log_are_one_table_while_the_archive_grows(
    spark: SparkSession, shop: Shop, tmp_path: Path, file_format: str
):
    path, places = tmp_path / "lake", _send(shop)
    report = _archive(spark, shop.url, path, topics=["orders"], file_format=file_format)
    assert report.archived == {"orders": {0: 5, 1: 5, 2: 5}}
    places += _send(shop)
    assert _places(_whole(spark, shop, path)) == Counter(places)
    report = _archive(spark, shop.url, path, keep=0)
    assert report.trimmed == {"orders": {0: 10, 1: 10, 2: 10}}
    places += _send(shop)
    assert shop.store.describe_topic("orders").rows == 15
    assert _places(_whole(spark, shop, path)) == Counter(places)
    table = spark.read.format(file_format).load(str(path))
    assert _places(table) == Counter(places[:30])  # any reader of the format sees it
    if file_format == "delta":
        assert len(DeltaTable(path).to_pandas()) == 30
        deletable = "SET TBLPROPERTIES (delta.enableDeletionVectors = true)"
        spark.sql(f"ALTER TABLE delta.`{path}` {deletable}")
        with pytest.raises(InvalidRequestError, match="Delta table with deletionVectors"):
            _archive(spark, shop.url, path, keep=0)
        assert shop.store.describe_topic("orders").rows == 15


MAPPED = {
    "delta.columnMapping.mode": "name",
    "delta.minReaderVersion": "2",
    "delta.minWriterVersion": "5",
}


def test_nothing_is_trimmed_for_a_table_whose_columns_have_other_names_in_its_files(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path, places = tmp_path / "lake", _send(shop)
    default = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    spark.conf.set(default, "name")
    try:
        _archive(spark, shop.url, path, topics=["orders"], file_format="delta", keep=0)
    finally:
        spark.conf.unset(default)
    assert _places(_whole(spark, shop, path)) == Counter(places)
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in MAPPED.items())
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({settings})")
    _send(shop)
    with pytest.raises(InvalidRequestError, match="Delta table with columnMapping"):
        _archive(spark, shop.url, path, keep=0)
    assert shop.store.describe_topic("orders").rows == 15


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_batch_whose_end_was_lost_is_archived_once(
    spark: SparkSession, shop: Shop, tmp_path: Path, file_format: str, *, fail_on_data_loss: bool
):
    path, places = tmp_path / "lake", _send(shop)
    _archive(spark, shop.url, path, topics=["orders"], file_format=file_format)
    places += _send(shop)
    _archive(spark, shop.url, path, keep=0)  # the log can't give the batch again
    forget_last_commit(next(path.glob("_kmq/*/commits")).parent)
    places += _send(shop)
    report = _archive(spark, shop.url, path, fail_on_data_loss=fail_on_data_loss)
    assert report.lost == 0
    assert _places(spark.read.format(file_format).load(str(path))) == Counter(places)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_batch_that_was_written_before_its_run_died_is_archived_once(
    spark: SparkSession, shop: Shop, tmp_path: Path, file_format: str
):
    path, places = tmp_path / "lake", _send(shop)
    _archive(spark, shop.url, path, topics=["orders"], file_format=file_format)
    (group,) = shop.store.groups()
    places += _send(shop)
    _archive(spark, shop.url, path)
    forget_last_commit(next(path.glob("_kmq/*/commits")).parent)
    shop.store.set_group_offsets(group.name, {"orders": {0: 5, 1: 5, 2: 5}})
    _archive(spark, shop.url, path)
    assert all(len([*batch.glob("_kmq_files-*")]) == 1 for batch in path.glob("batch=*"))
    assert _places(spark.read.format(file_format).load(str(path))) == Counter(places)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.sources.partitionOverwriteMode", "dynamic"),
        ("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"),
    ],
)
def test_a_session_that_leaves_no_mark_of_spark_archives_as_any_other(
    spark: SparkSession, shop: Shop, tmp_path: Path, setting: str, value: str
):
    path, places, session = tmp_path / "lake[1]", _send(shop), spark.newSession()
    session.conf.set(setting, value)
    _archive(session, shop.url, path, topics=["orders"], file_format="parquet", keep=0)
    assert shop.store.describe_topic("orders").rows == 0
    assert _places(_whole(spark, shop, path)) == Counter(places)


def test_a_record_keeps_all_it_has_in_the_archive(spark: SparkSession, shop: Shop, tmp_path: Path):
    path = tmp_path / "lake"
    with shop.store.producer() as producer:
        producer.send(
            "orders", None, b"k", headers={"a": b"1"}, properties={"n": 7, "t": "x"}, partition=0
        )
        producer.send("orders", b"v", partition=1)
    columns = ["key", "value", "partition", "offset", "timestamp", "headers", "properties"]
    reader = spark.read.format("kmq").option("subscribe", "orders")
    reader = reader.option("includeHeaders", True).option("includeProperties", True)
    before = sorted(map(str, reader.load(shop.url).select(columns).collect()))
    _archive(spark, shop.url, path, topics=["orders"], file_format="parquet", keep=0)
    after = reader.option("archive", str(path)).load(shop.url).select(columns)
    assert sorted(map(str, after.collect())) == before


def test_typed_topics_keep_their_columns_and_may_get_more(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    name = 'the_"na.me`'
    schema = pa.schema([("id", pa.int32()), (name, pa.string())])
    shop.store.create_topic("people", schema=schema)
    with shop.store.producer() as producer:
        producer.send("people", {"id": 1, name: "ada"})
    _archive(spark, shop.url, path, topics=["people"], keep=0)
    wider = pa.schema([("id", pa.int64()), (name, pa.string()), ("year", pa.int32())])
    shop.store.alter_topic("people", schema=wider)
    with shop.store.producer() as producer:
        producer.send("people", {"id": 2, name: "bob", "year": 1980})
    _archive(spark, shop.url, path, keep=0)
    with shop.store.producer() as producer:
        producer.send("people", {"id": 3, name: "eve", "year": 1990})
    reader = spark.read.format("kmq").option("subscribe", "people").option("archive", str(path))
    rows = sorted(tuple(row) for row in reader.load(shop.url).collect())
    assert rows == [(1, "ada", None), (2, "bob", 1980), (3, "eve", 1990)]


def test_a_column_that_a_topic_gets_while_the_job_runs_is_archived(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path, people = tmp_path / "lake", pa.schema([("id", pa.int32())])
    shop.store.create_topic("people", schema=people)
    again = {"processingTime": "0 seconds"}  # else the error comes with the next ten seconds
    query = patiently(archive.start, spark, shop.url, path, topics=["people"], trigger=again)
    try:
        query.processAllAvailable()
        shop.store.alter_topic("people", schema=people.append(pa.field("year", pa.int32())))
        with shop.store.producer() as producer:
            producer.send("people", {"id": 1, "year": 1980})
        with pytest.raises(StreamingQueryException, match="has got column 'year' since this job"):
            query.awaitTermination(120)
    finally:
        query.stop()
    _archive(spark, shop.url, path, keep=0)
    reader = spark.read.format("kmq").option("subscribe", "people").option("archive", str(path))
    assert [tuple(row) for row in reader.load(shop.url).collect()] == [(1, 1980)]


@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-31", "2500-01-01", "9999-12-31"])
def test_the_first_and_the_last_record_of_a_day_are_of_that_day(spark: SparkSession, day: str):
    times = [f"timestamp'{day} {time}Z'" for time in ("00:00:00", "23:59:59.999999")]
    each = f"explode(array({', '.join(times)})) timestamp"
    rows = spark.sql(f"SELECT 'orders' topic, 0 partition, 0 offset, {each}")
    found = _laid_out(rows, RECORD).selectExpr("cast(day as string)").collect()
    assert [row[0] for row in found] == [day, day]


def test_a_stream_reads_history_first(spark: SparkSession, shop: Shop, tmp_path: Path):
    path, places = tmp_path / "lake", _send(shop)
    _archive(spark, shop.url, path, topics=["orders"], file_format="parquet", keep=0)
    places += _send(shop)
    sink = Collector()
    run(load(spark, shop, archive=path), sink, tmp_path / "checkpoint")
    assert sink.places == sorted(places)


def _make_again(shop: Shop) -> None:
    shop.delete("orders")
    shop.create("orders", 3)


def _trim(shop: Shop) -> None:
    shop.store.trim("orders", {0: 9, 1: 8})


@pytest.mark.parametrize(
    ("lose", "lost"), [(_make_again, 15), (_trim, 7)], ids=["made again", "trimmed"]
)
def test_an_archive_stops_at_lost_records_or_counts_them_and_goes_on(
    spark: SparkSession, shop: Shop, tmp_path: Path, lose: Callable[[Shop], None], lost: int
):
    path = tmp_path / "lake"
    _send(shop)
    _archive(spark, shop.url, path, topics=["orders"], file_format="parquet")
    _send(shop)
    lose(shop)
    _send(shop)
    with pytest.raises(StreamingQueryException, match="DataLossError"):
        _archive(spark, shop.url, path)
    report = _archive(spark, shop.url, path, fail_on_data_loss=False)
    ends = {p: end for p, (_, end) in shop.store.offsets("orders").items()}
    assert (report.archived, report.lost) == ({"orders": ends}, lost)
    assert _archive(spark, shop.url, path, keep=0).lost == 0
    if lose is _trim:
        with pytest.raises(PySparkException, match=r"orders-\d: offsets 5 to \d were lost before"):
            _whole(spark, shop, path).count()
        assert _whole(spark, shop, path, failOnDataLoss=False).count() == 45 - lost
    assert spark.read.format("parquet").load(str(path)).count() == 45 - lost


def test_a_job_trims_nothing_that_a_restored_table_no_longer_has(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    for _ in range(2):
        _send(shop)
        _archive(spark, shop.url, path, topics=["orders"])
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 0")
    _send(shop)
    with pytest.raises(DataLossError, match=r"orders-\d: offsets 5 to 9 .* nothing was trimmed"):
        _archive(spark, shop.url, path, keep=0)
    assert _whole(spark, shop, path).count() == shop.store.describe_topic("orders").rows == 45
    _archive(spark, shop.url, path, keep=0, fail_on_data_loss=False)
    with pytest.raises(PySparkException, match=r"orders-\d: offsets 5 to 9 are in no file"):
        _whole(spark, shop, path).count()
    assert _whole(spark, shop, path, failOnDataLoss=False).count() == 30


def test_a_store_in_a_bucket_is_archived_by_what_its_client_is_given(
    spark: SparkSession, moto: S3Server, tmp_path: Path
):
    bucket = Shop(moto.new_url(), storage_options=moto.options())
    bucket.create("orders")
    bucket.send("orders", 0, 4)
    report = _archive(
        spark,
        bucket.url,
        tmp_path / "lake",
        topics=["orders"],
        file_format="parquet",
        storage_options=moto.options(),
    )
    assert report.archived == {"orders": {0: 4}}
    bucket.close()


def test_a_place_that_spark_has_no_file_system_for_is_refused_before_anything_is_written(
    spark: SparkSession, shop: Shop, s3_url: str
):
    _send(shop)
    with pytest.raises(InvalidRequestError, match=r"No FileSystem for scheme .*hadoop-aws"):
        _archive(spark, shop.url, s3_url, topics=["orders"])
    assert open_files(s3_url).list("") == []
    assert shop.store.groups() == []


def test_a_place_is_reached_by_its_name_though_that_reads_as_a_pattern(
    spark: SparkSession, tmp_path: Path
):
    (tmp_path / "lake::x").mkdir()
    for name in ("l*ke", "la[ke", "la{ke"):
        check_reachable(spark, str(tmp_path / name))


def test_an_archive_in_parquet_needs_no_library_of_delta_to_trim_the_log(
    spark: SparkSession, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _send(shop)
    monkeypatch.setitem(sys.modules, "deltalake", None)  # as where it is not installed
    made = partial(_archive, spark, shop.url, keep=0)
    with pytest.raises(InvalidRequestError, match=r"pip install 'kmq-spark\[delta\]'"):
        made(tmp_path / "delta", topics=["orders"], file_format="delta")
    report = made(tmp_path / "parquet", topics=["orders"], file_format="parquet")
    assert report.trimmed == {"orders": {0: 5, 1: 5, 2: 5}}
    _send(shop)
    assert made(tmp_path / "parquet").trimmed == {"orders": {0: 10, 1: 10, 2: 10}}


def test_an_archive_that_lost_its_checkpoint_is_not_written_on(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    _send(shop)
    _archive(spark, shop.url, path, topics=["orders"], file_format="parquet")
    (checkpoint,) = (each for each in (path / "_kmq").iterdir() if each.is_dir())
    shutil.rmtree(checkpoint)
    with pytest.raises(IllegalStateError, match="lost the checkpoint"):
        _archive(spark, shop.url, path)


def test_an_archive_takes_topics_of_one_kind_and_keeps_its_format(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    shop.store.create_topic("people", schema=pa.schema([("id", pa.int32())]))
    _archive(spark, shop.url, path, topics=["orders"])
    with pytest.raises(InvalidRequestError, match="people is typed"):
        _archive(spark, shop.url, path, topics=["orders", "people"])
    with pytest.raises(InvalidRequestError, match="is in delta"):
        _archive(spark, shop.url, path, file_format="parquet")
    with pytest.raises(InvalidRequestError, match="needs the names"):
        _archive(spark, shop.url, tmp_path / "other")
