"""Spark's reader on a store in a bucket, without a JVM. Finds plans that only work on a folder."""

from __future__ import annotations

import pickle

import pytest

import kmq_spark as kmq
from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.options.source_options import parse_source_options


@pytest.mark.parametrize("cloned", [False, True])
def test_tasks_fetch_the_records_of_a_bucket_by_themselves(s3_url: str, *, cloned: bool) -> None:
    with kmq.open(s3_url) as store, store.producer() as producer:
        store.create_topic("orders", partitions=2)
        for n in range(500):
            producer.send("orders", b"%d" % n, partition=n % 2)
        producer.flush()
        producer.send_batch("orders", [b"x" * 100_000] * 20, partition=0).result(30)
    if cloned:
        kmq.clone(s3_url, f"{s3_url}/clone")
        s3_url += "/clone"
    reader = KmqBatchReader(parse_source_options({"path": s3_url, "subscribe": "orders"}))
    tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]
    batches = [batch for task in tasks for batch in pickle.loads(pickle.dumps(reader)).read(task)]
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert len(values) == 520
    assert {int(value) for value in values if len(value) < 10} == set(range(500))
