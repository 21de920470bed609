"""A process that is stopped in the middle of a transaction, while another takes its place.

Finds: records or offsets of a fenced instance that come in after all, and effects that are doubled.
"""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.e2e import workers

pytestmark = pytest.mark.e2e


def _send_on(store: kmq.Store, stop: bool = False) -> None:
    producer = store.producer(transactional_id="loop")
    consumer = store.consumer("g", topics=["t"], name="loop", session_timeout=1.0)
    with consumer, producer.transaction() as transaction:
        for each in consumer.consume(10, timeout=30):
            transaction.send("out", each.value)
        transaction.commit_offsets(consumer)
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)


def send_on_and_be_stopped(url: str, pipe: Connection) -> None:
    """Send ten records on in a transaction; be stopped before it commits; tell how it ended."""
    with kmq.open(url) as store:
        try:
            _send_on(store, stop=True)
            pipe.send("committed")
        except kmq.KmqError as error:
            pipe.send(type(error).__name__)


def _until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline, "it was not stopped"
        time.sleep(0.05)


def test_a_transaction_that_was_stopped_while_another_took_its_place_leaves_nothing(
    tmp_path: Path,
):
    url = str(tmp_path / "store")
    values = [b"%d" % n for n in range(10)]
    with kmq.open(url) as store, store.producer() as producer:
        store.create_topic("t")
        store.create_topic("out")
        producer.send_batch("t", values).result()
        with workers.running(send_on_and_be_stopped, url) as (process, pipe):
            _until_stopped(process.pid)
            _send_on(store)
            os.kill(process.pid, signal.SIGCONT)
            assert pipe.poll(60)
            assert pipe.recv() in ("FencedError", "TransactionAbortedError")
        assert store.read("out").read_all()["value"].to_pylist() == values
        assert store.describe_group("g").committed == {"t": {0: 10}}
