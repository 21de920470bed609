"""Finds readers that disturb each other: many at once in one process, while records move."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.planning.view import View
from tests.spark.shop import Shop
from tests.unit.datasource.engine import plain_columns

READERS, USES, RECORDS = 20, 400, 300


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Three partitions of numbered records with headers, half of them sealed."""
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    with made.store.producer() as producer:
        for number in range(RECORDS):
            text = b"%d" % number
            producer.send("orders", text, headers={"n": text}, partition=number % 3)
            if number == RECORDS // 2:
                producer.flush()
                made.store.seal()
    yield made
    made.close()


def _reader(shop: Shop, tasks: int) -> KmqBatchReader:
    given = {"subscribe": "orders", "includeHeaders": "true", "minPartitions": str(tasks)}
    options = parse_source_options({"path": shop.url, **given})
    return KmqBatchReader(options, View(plain_columns(headers=True)))


def _numbers(reader: KmqBatchReader, task: InputPartition) -> list[int]:
    """The numbers of a task's records, which their headers say, too."""
    rows = [row for batch in reader.read(task) for row in batch.to_pylist()]
    assert all(row["headers"] == [{"key": "n", "value": row["value"]}] for row in rows)
    assert all(int(row["value"]) % 3 == row["partition"] for row in rows)
    return [int(row["value"]) for row in rows]


def test_many_readers_at_once_have_their_own_records_with_their_headers(shop: Shop):
    reader = _reader(shop, 12)
    tasks = reader.partitions()
    wanted = [_numbers(reader, task) for task in tasks]
    assert sorted(n for each in wanted for n in each) == list(range(RECORDS))

    def use(seed: int) -> bool:
        chosen = Random(seed).randrange(len(tasks))
        if seed == USES // 4:
            shop.store.seal()
            shop.store.checkpoint()
        return _numbers(reader, tasks[chosen]) == wanted[chosen]

    with ThreadPoolExecutor(READERS) as pool:
        assert all(pool.map(use, range(USES)))


def test_many_reads_are_planned_at_once(shop: Shop):
    def read(tasks: int) -> list[int]:
        reader = _reader(shop, tasks)
        return sorted(n for task in reader.partitions() for n in _numbers(reader, task))

    with ThreadPoolExecutor(READERS) as pool:
        assert all(found == list(range(RECORDS)) for found in pool.map(read, range(1, READERS + 1)))
