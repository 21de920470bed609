"""A loop that reads, computes and writes, killed again and again: each record has its effect once.

Finds: output without its offsets, offsets without their output, and a killed instance that commits
beside its successor.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.e2e import workers

pytestmark = pytest.mark.e2e

RECORDS, KILLS = 3_000, 8


def transform(url: str, pipe: Connection) -> None:
    """Copy records from `in` to `out` and their number to `sums`, with their offsets, for ever."""
    store = kmq.open(url, durability="os")
    producer = store.producer(transactional_id="transform")
    consumer = store.consumer("transform", topics=["in"], name="transform")
    while True:
        records = consumer.consume(20, timeout=0.5)
        with producer.transaction() as tx:
            for record in records:
                tx.send("out", record.value, partition=record.partition)
            tx.send("sums", b"%d" % len(records))
            tx.commit_offsets(consumer)
        pipe.send(len(records))


def test_a_loop_that_is_killed_at_random_has_each_effect_once(tmp_path: Path):
    seed = int(os.environ.get("KMQ_SEED", "0")) or random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f"KMQ_SEED={seed}")
    url = str(tmp_path / "store")
    with kmq.open(url, durability="os") as store:
        for topic in ("in", "out", "sums"):
            store.create_topic(topic, partitions=3)
        with store.producer() as producer:
            for number in range(RECORDS):
                producer.send("in", b"%d" % number, partition=number % 3)
        for kill in range(KILLS + 1):
            with workers.running(transform, url) as (process, pipe):
                done = 0
                for _ in range(rng.randrange(2, 8) if kill < KILLS else RECORDS):
                    assert pipe.poll(60)
                    done += pipe.recv()
                    if not store.describe_group("transform").lag["in"].get(0, 1) and kill == KILLS:
                        break
                time.sleep(rng.random() * 0.003)
                os.kill(process.pid, signal.SIGKILL)
        _check(store)


def _check(store: kmq.Store) -> None:
    committed = store.describe_group("transform").committed["in"]
    with store.consumer(topics=["out"]) as reader:
        found = reader.consume(10 * RECORDS, timeout=0)
    by_partition = Counter(record.partition for record in found)
    assert by_partition == Counter({p: n for p, n in committed.items() if n})
    assert max(Counter(record.value for record in found).values()) == 1
    for number in range(3):
        values = [int(r.value or b"") for r in found if r.partition == number]
        assert values == list(range(number, RECORDS, 3))[: len(values)]
    with store.consumer(topics=["sums"]) as reader:
        sums = sum(int(record.value or b"") for record in reader.consume(10 * RECORDS, timeout=0))
    assert sums == len(found)
    assert sums > 300
