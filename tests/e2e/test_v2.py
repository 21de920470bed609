"""Kmq's version 2 between processes: one array for all, and its demo as people run it.

Finds: a poll that sleeps on when another process has sent, messages that two processes with one id
both get or neither, a part of a transaction of a killed process, and a demo that loses an order.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.v2 import KmqBroker, KmqMessage
from tests.support.processes import exit_codes, start_python

pytestmark = pytest.mark.e2e

MESSAGES, READERS = 300, 3

_BEGIN = """
import os, signal, sys
import kmq_spark as kmq
from kmq_spark.v2 import KmqBroker, KmqMessage
broker = KmqBroker(kmq.open(sys.argv[1], durability="os"))
array = broker.find_kmq("t")
"""
_SEND = """
producer = broker.create_producer()
for number in range(int(sys.argv[2])):
    assert producer.send("t", KmqMessage({"by": "child"}, number))
"""
_POLL = """
with open(sys.argv[2], "w") as out:
    while (message := array.poll("shared", 100_000)).body != "end":
        print(message.body, file=out)
"""
_DIE = """
producer = broker.create_producer()
producer.auto_commit = False
producer.begin_transaction("t")
producer.send_without_lock("t", KmqMessage(None, "lost"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_poll_waits_for_what_another_process_sends(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        broker = KmqBroker(store)
        broker.create_topic("t")
        consumer = broker.create_consumer()
        consumer.subscribe("t")
        child = start_python(_BEGIN + _SEND, store.url, "20")
        found = [consumer.poll(60_000) for _ in range(20)]
        assert exit_codes([child]) == [0]
    assert found == [KmqMessage({"by": "child"}, number) for number in range(20)]


def test_processes_that_share_an_id_get_each_message_once_and_in_order(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        broker = KmqBroker(store)
        broker.create_topic("t").register_consumer("shared")
        files = [tmp_path / f"read-{number}" for number in range(READERS)]
        readers = [start_python(_BEGIN + _POLL, store.url, str(file)) for file in files]
        producer = broker.create_producer()
        for number in range(MESSAGES):
            producer.send("t", KmqMessage(None, number))
        for _ in readers:
            producer.send("t", KmqMessage(None, "end"))
        assert exit_codes(readers) == [0] * READERS
        array = broker.find_kmq("t")
        assert array is not None
        assert array.poll("shared") is None
    found = [[int(line) for line in file.read_text().split()] for file in files]
    assert sorted(number for each in found for number in each) == list(range(MESSAGES))
    assert all(each == sorted(each) for each in found)


def test_a_process_that_is_killed_within_a_transaction_leaves_nothing_and_blocks_nobody(
    tmp_path: Path,
):
    with kmq.open(tmp_path / "store") as store:
        broker = KmqBroker(store)
        array = broker.create_topic("t")
        assert exit_codes([start_python(_BEGIN + _DIE, store.url)]) == [-9]
        assert array.current_write_index == 0
        producer = broker.create_producer()
        producer.auto_commit = False
        producer.begin_transaction("t")
        producer.send_without_lock("t", KmqMessage(None, "kept"))
        producer.commit_transaction("t")
        array.register_consumer("c")
        assert array.poll("c") == KmqMessage(None, "kept")


def test_the_demo_brings_every_order_and_pair_through_behind_what_a_store_has(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        KmqBroker(store).create_topic("kk.test")
        with store.producer() as producer:
            producer.send_batch("kk.test", [b"1", b"2"])
    command = [sys.executable, "-m", "kmq_spark.cli", "demo", "orders", "--json"]
    done = subprocess.run(
        [*command, "--store", tmp_path / "store"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "topic": "kk.test",
        "sent": 1006,
        "received": 1006,
        "pairs": 3,
        "aborted": 1,
        "in_order": True,
    }
    with kmq.open(tmp_path / "store") as store:
        assert store.offsets("kk.test") == {0: (0, 1008)}
