"""Finds work of a write's tasks that grows with topics that they don't write to."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.options.sink_options import SinkOptions
from kmq_spark.datasource.sink import sink as sinks
from kmq_spark.datasource.sink.sink import open_sink
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
