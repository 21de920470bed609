"""Finds work and messages of a write that grow faster than its rows, topics and partitions."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.options.sink_options import SinkOptions
from kmq_spark.datasource.sink import commit as commits
from kmq_spark.datasource.sink import sink as sinks
from kmq_spark.datasource.sink.sink import Written, open_sink
from kmq_storage.log.staging import PartitionRecords, Placed, Stager
from tests.spark.shop import Shop

SCHEMA = pa.schema([(f"column{n}", pa.int64()) for n in range(50)])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    for number in range(20):
        made.create(f"orders{number}", 2)
    return made


def test_a_task_makes_only_the_topics_that_its_rows_name_and_each_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    defined = sinks._defined

    def counted(name: str, definition: sinks.Definition) -> sinks.Topic:
        made.append(name)
        return defined(name, definition)

    monkeypatch.setattr(sinks, "_defined", counted)
    sink = pickle.loads(pickle.dumps(open_sink(SinkOptions(url=shop.url, topic=None))))
    names = pa.array(["orders3", "orders11", "orders3"])
    rows = pa.RecordBatch.from_arrays([names, pa.array([b"a", b"b", b"c"])], ["topic", "value"])
    written = write_task(sink, [rows, rows], task=0)
    assert sum(each.batches[0].batch.num_rows for each in written.small) == 6
    assert sorted(made) == ["orders11", "orders3"]


def test_a_schema_that_many_topics_have_travels_to_a_task_once(shop: Shop) -> None:
    for number in range(20):
        shop.create(f"typed{number}", schema=SCHEMA)
    sink = pickle.loads(pickle.dumps(open_sink(SinkOptions(url=shop.url, topic=None))))
    assert sink.find("typed7").settings.schema == SCHEMA
    (encoded,) = sink.find("typed7").settings.schemas
    assert pickle.dumps(sink).count(encoded.encode()) == 1


def _spread(shop: Shop, topic: str, partitions: int) -> Written:
    """What a task wrote that has one small row for each partition of a topic."""
    values = pa.array([b"v%d" % number for number in range(partitions)])
    numbers = pa.array(range(partitions), pa.int32())
    rows = pa.RecordBatch.from_arrays([values, numbers], ["value", "partition"])
    return write_task(open_sink(SinkOptions(url=shop.url, topic=topic)), [rows], task=0)


def test_the_message_of_a_task_has_each_row_once_however_many_partitions_they_are_of(
    shop: Shop,
) -> None:
    shop.create("wide", 1000)
    written = _spread(shop, "wide", 1000)
    message = pickle.dumps(written)
    assert len(message) < 100_000  # of 1,000 rows; with all rows for each partition, it was 20 MB
    sent = pickle.loads(message)
    assert sent == written
    assert len(sent.small) == 1000


def test_the_commit_of_a_write_looks_at_each_placed_batch_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    class Body:
        @property
        def size(self) -> int:
            looks.append(self)
            return 1

    def place(self: Stager, records: PartitionRecords, *, room: int) -> Placed:
        return Placed((), (Body(),))  # type: ignore[arg-type]

    monkeypatch.setattr(Stager, "place", place)
    shop.create("wide", 100)
    unit = commits._unit_of(shop.store.log, [_spread(shop, "wide", 100)], (), ())
    assert len(unit.bodies) == len(looks) == 100
