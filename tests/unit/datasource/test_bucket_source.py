"""Spark's readers on a store in a bucket, without a JVM. Finds plans that only work on a folder,
and queries that a lease of a dead process keeps from their group."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys

import pytest

import kmq_spark as kmq
from kmq_storage.errors import FencedError
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Stream, batch_reader
from tests.unit.datasource.test_stream_limits import Clock

#: The process that Spark keeps for a source, in a group by now and with nothing to do.
SOURCE = """
import sys
from kmq_spark.datasource.source import KmqDataSource

options = {"path": sys.argv[1], "subscribe": "orders", "group": "billing"}
source = KmqDataSource(options)
reader = source.streamReader(source.schema())
reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
print("joined", flush=True)
sys.stdin.read()
"""


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
    reader = batch_reader({"path": s3_url, "subscribe": "orders"})
    tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]
    batches = [batch for task in tasks for batch in pickle.loads(pickle.dumps(reader)).read(task)]
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert len(values) == 520
    assert {int(value) for value in values if len(value) < 10} == set(range(500))


def _patient(shop: Shop, clock: Clock) -> Stream:
    stream = Stream(shop, startingOffsets="earliest", group="billing")
    stream.environment = clock.environment()
    return stream


def test_a_restarted_query_does_not_wait_for_the_lease_of_its_own_dead_process(s3_url: str) -> None:
    shop, clock = Shop(s3_url), Clock()
    shop.create("orders")
    stream = _patient(shop, clock)
    killed = stream.start()
    killed.all_available()  # and nobody gives back its lease
    stream.stop = lambda: None  # type: ignore[method-assign]
    shop.send("orders", 0, 3)
    stream.start().all_available()
    assert stream.sink.places == shop.places("orders")
    assert clock.seconds == 1_000.0, "nobody had to wait"
    shop.send("orders", 0, 3)
    known = stream.sink.places
    with pytest.raises(FencedError, match="group billing was taken over"):
        killed.trigger()  # it was not dead after all
    assert stream.sink.places == known, "nor did it read what the other one reads, too"


def test_another_query_is_told_how_long_a_dead_one_keeps_its_group(s3_url: str) -> None:
    shop = Shop(s3_url)
    shop.create("orders")
    killed = _patient(shop, Clock()).start()
    killed.all_available()
    told = r"if it is dead, its lease ends 30 s after its death\): stop it, or wait for its end"
    with pytest.raises(FencedError, match=told):
        _patient(shop, Clock()).start().trigger()


def test_who_comes_after_an_available_now_run_in_a_bucket_need_not_wait_for_its_lease(
    s3_url: str,
) -> None:
    shop = Shop(s3_url)
    shop.create("orders")
    shop.send("orders", 0, 3)
    first = Stream(shop, startingOffsets="earliest", group="g")
    ended = first.start(available_now=True)
    ended.all_available()  # its process is dead now, and told nobody
    second = Stream(shop, group="g")
    shop.send("orders", 0, 2)
    second.start(available_now=True).all_available()
    assert first.sink.places + second.sink.places == shop.places("orders")
    assert shop.committed("g", "orders") == {0: 5}
    # Where it has another source, Spark goes on asking this one: it comes for no place again.
    shop.grow("orders", 2)
    assert not ended.trigger()
    shop.delete_group("g")


def test_who_comes_after_a_query_that_spark_has_ended_in_a_bucket_need_not_wait_for_its_lease(
    s3_url: str,
) -> None:
    shop, clock = Shop(s3_url), Clock()
    shop.create("orders")
    command = [sys.executable, "-c", SOURCE, s3_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as source:
        assert source.stdout is not None
        assert source.stdout.readline() == b"joined\n"
        source.terminate()  # which is all that Spark does
        assert source.wait(60) == -signal.SIGTERM
    _patient(shop, clock).start().trigger()
    assert clock.seconds == 1_000.0, "nobody had to wait"
