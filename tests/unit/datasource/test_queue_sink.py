"""Finds records that a write to a queue loses, repeats, misplaces or lets through."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

import kmq_spark as kmq
from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.incremental import incremental
from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.writer import KmqBatchWriter, KmqStreamWriter
from kmq_storage.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    QueueFullError,
)
from kmq_storage.paths import log_file
from tests.spark.shop import Shop
from tests.support.damage import flip
from tests.support.storage import open_folder
from tests.unit.datasource.spark_stand_in import SparkStandIn

SCHEMA = StructType().add("value", BinaryType())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("jobs")
    made.store.create_queue("jobs")
    return made


def _rows(*values: bytes | None, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **columns})


def _save(shop: Shop, *tasks: pa.RecordBatch, schema: StructType = SCHEMA, **options: str) -> None:
    """Write a batch as Spark does, each record batch by a task of its own."""
    given = {"path": shop.url, **(options or {"queue": "jobs"})}
    writer = pickle.loads(pickle.dumps(KmqDataSource(given).writer(schema, overwrite=False)))
    assert isinstance(writer, KmqBatchWriter)
    messages = [write_task(writer._sink, [rows], task=n) for n, rows in enumerate(tasks)]
    writer.commit(pickle.loads(pickle.dumps(messages)))


def _save_stream(shop: Shop, number: int, *values: bytes) -> None:
    writer = KmqDataSource({"path": shop.url, "queue": "jobs"}).streamWriter(SCHEMA, False)
    assert isinstance(writer, KmqStreamWriter)
    writer.commit([write_task(writer._sink, [_rows(*values)], task=0, query="q")], number)


def _received(shop: Shop) -> list[bytes | None]:
    return [each.value for each in shop.store.queue("jobs").receive(2_000)]


def test_rows_are_handed_out_in_the_order_of_the_tasks_large_and_small(shop: Shop) -> None:
    large = [b"%03d" % n * 200 for n in range(500)]
    lsn = shop.lsn()
    _save(shop, _rows(b"first"), _rows(*large), _rows(b"last"))
    assert shop.lsn() == lsn + 1
    assert _received(shop) == [b"first", *large, b"last"]
    assert shop.values("jobs") == []


def test_a_frame_that_was_read_from_topics_goes_to_a_queue_as_it_is(shop: Shop) -> None:
    """Where its rows came from says nothing of a queue, which has one log."""
    columns = {
        "key": pa.array([b"k"], pa.binary()),
        "topic": pa.array(["orders"]),
        "partition": pa.array(["any type"]),
        "properties": pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string())),
    }
    schema = StructType().add("value", BinaryType()).add("partition", StringType())
    _save(shop, _rows(b"v", **columns), schema=schema)
    (found,) = shop.store.queue("jobs").receive()
    assert (found.key, found.value, found.properties) == (b"k", b"v", {"a": "1"})


def test_a_batch_of_a_stream_that_comes_again_is_stored_once(shop: Shop) -> None:
    for number, value in [(0, b"a"), (0, b"a"), (1, b"b"), (0, b"a"), (1, b"b")]:
        _save_stream(shop, number, value)
    assert _received(shop) == [b"a", b"b"]


def test_a_version_counts_for_its_queue_not_for_a_topic_of_that_name(shop: Shop) -> None:
    for target in ("queue", "topic", "queue", "topic"):
        _save(shop, _rows(b"a"), txnAppId="job", txnVersion="1", **{target: "jobs"})
    assert (_received(shop), shop.values("jobs")) == ([b"a"], [b"a"])


def test_what_a_full_queue_has_no_room_for_is_stored_in_no_part(shop: Shop) -> None:
    shop.store.create_queue("small", capacity=2)
    _save(shop, _rows(b"a"), queue="small")
    with pytest.raises(QueueFullError, match="queue small is full"):
        _save(shop, _rows(b"b"), _rows(b"c"), queue="small")
    assert [each.value for each in shop.store.queue("small").receive(9)] == [b"a"]


def test_an_incremental_job_hands_each_record_to_a_queue_once(shop: Shop) -> None:
    shop.create("orders", 2)
    for _ in range(2):
        shop.send("orders", 1, 3)
        for _ in range(2):
            with incremental(SparkStandIn(), shop.url, "g", subscribe="orders") as new:
                new.write(new.df, queue="jobs")
    assert _received(shop) == shop.values("orders")
    assert shop.committed("g", "orders") == {0: 0, 1: 6}


UNKNOWN = {
    "misspelt": ("jops", r"did you mean 'jobs'.*kmq queue create jops`$"),
    "a topic": (
        "orders",
        r"create_queue\('orders'\).*for the topic of that name use option 'topic'",
    ),
}


@pytest.mark.parametrize(("name", "message"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_queue_that_is_not_there_is_refused_with_the_way_out(
    shop: Shop, name: str, message: str
) -> None:
    shop.create("orders")
    with pytest.raises(NotFoundError, match=rf"^Queue\[{name}\] doesn't exist.*{message}"):
        _save(shop, _rows(b"a"), queue=name)


def test_a_queue_whose_creation_is_damaged_is_not_said_to_be_missing(tmp_path: Path) -> None:
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_queue("jobs")
    (created,) = open_folder(tmp_path)._past.frames(1, 1)
    flip(tmp_path / log_file(created.file), created.position + 130)
    source = KmqDataSource({"path": str(tmp_path), "queue": "jobs"})
    with pytest.raises(CorruptionError, match=r"^Queue\[jobs\] is not known, but"):
        source.writer(SCHEMA, overwrite=False)


def test_a_write_goes_to_a_topic_or_to_a_queue(shop: Shop) -> None:
    with pytest.raises(InvalidRequestError, match="a write goes to one of the two"):
        _save(shop, _rows(b"a"), queue="jobs", topic="jobs")


def test_a_queue_takes_no_row_without_a_value_from_spark_or_as_arrow(shop: Shop) -> None:
    with pytest.raises(InvalidRequestError, match=r"row for queue jobs: .* no tombstones"):
        _save(shop, _rows(b"a", None))
    with shop.store.producer() as producer:
        sent = producer.send_arrow_to_queue("jobs", _rows(b"a", None))
        with pytest.raises(kmq.InvalidRequestError, match="no tombstones"):
            sent.result(10)
    assert _received(shop) == []
