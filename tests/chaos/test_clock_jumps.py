"""Processes whose clocks jump by hours and years, forth and back, while they work on one store.

Finds a place where a clock decides what is stored: lost or doubled records, times that go back.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.support.s3 import S3Server

pytestmark = pytest.mark.chaos

_CLOCK = """
import random, sys, time
import kmq_spark as kmq
from kmq_storage.environment import Environment

url, name, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(name)
jumps = (0, 0, 0, 0, -3_600, 3_600, -86_400 * 365, 86_400 * 365)
clock = Environment(now_ns=lambda: time.time_ns() + rng.choice(jumps) * 10**9)
"""
_WORK = """
with kmq.open(url, environment=clock) as store, store.producer(linger=0.0) as producer:
    with store.consumer(name, topics=["t"]) as consumer:
        for number in range(records):
            print(producer.send("t", f"{name}-{number}").result(120).offset, flush=True)
            if number % 20 == 0:
                consumer.consume(10, timeout=0.1)
                consumer.commit()
"""
#: Sends to a queue, then receives until nothing comes; tells what it acknowledged in time.
_SHARE = """
with kmq.open(url, environment=clock) as store, store.queue("q") as queue:
    with store.producer(linger=0.0) as producer:
        for number in range(records):
            producer.send_to_queue("q", f"{name}-{number}").result(120)
    while held := queue.receive(rng.choice((1, 7)), timeout=5.0):
        for each in held:
            try:
                each.ack()
                print(each.offset, flush=True)
            except kmq.LeaseExpiredError:
                pass
"""
#: Shares a topic with the others, and sends each record on in a transaction.
_FORWARD = """
with kmq.open(url, environment=clock) as store, store.producer(linger=0.0) as producer:
    consumer = store.consumer("g", topics=["t"], assignor="sticky")
    while found := consumer.consume(7, timeout=5.0):
        try:
            with producer.transaction() as transaction:
                for each in found:
                    transaction.send("out", each.value)
                transaction.commit_offsets(consumer)
        except kmq.TransactionAbortedError:  # it had lost a partition
            consumer.close()
            consumer = store.consumer("g", topics=["t"], assignor="sticky")
    consumer.close()
"""
#: Shares a topic with the others in order, until all of it is committed; tells what it was given.
_IN_ORDER = """
import os

def listen(batch, context):
    for each in batch:  # in one piece: there are several threads
        os.write(1, b"%d\\n" % (1_000 * each.partition + each.offset))
    return kmq.OrderlyStatus.SUCCESS

with kmq.open(url, environment=clock) as store, store.orderly_consumer("g", "t", listen):
    while sum(store.describe_group("g").committed.get("t", {}).values()) < 3 * records:
        time.sleep(0.2)
"""
NAMES = ("a", "b", "c")


def _told(code: str, url: str, records: int) -> list[list[int]]:
    """The numbers that three processes print which run this code at once."""
    words = [sys.executable, "-c", _CLOCK + code, url]
    workers = [
        subprocess.Popen([*words, name, str(records)], stdout=subprocess.PIPE) for name in NAMES
    ]
    told = [
        [int(line) for line in worker.communicate(timeout=250)[0].split()] for worker in workers
    ]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    return told


@pytest.mark.parametrize(("place", "records"), [("folder", 60), ("bucket", 15)])
def test_jumping_clocks_lose_and_double_nothing(
    place: str, records: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    url = str(request.getfixturevalue("tmp_path") / "store")
    if place == "bucket":
        moto: S3Server = request.getfixturevalue("moto")
        url = moto.new_url()
        for name, value in moto.environment().items():
            monkeypatch.setenv(name, value)
    with kmq.open(url) as store:
        store.create_topic("t")
    told = _told(_WORK, url, records)
    with kmq.open(url, read_only=True) as store:
        values = store.read("t").read_all()["value"].to_pylist()
        times = [commit.time for commit in store.commits()]
        assert store.verify(deep=True).damage == []
    assert len(values) == len(NAMES) * records
    for name, offsets in zip(NAMES, told, strict=True):
        assert [values[at] for at in offsets] == [f"{name}-{n}".encode() for n in range(records)]
        assert offsets == sorted(offsets)
    assert times == sorted(set(times))


def test_jumping_clocks_let_each_record_of_a_queue_be_done_by_one(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_queue("q")
    told = _told(_SHARE, str(tmp_path / "store"), 100)
    assert sorted(chain(*told)) == list(range(300))
    with kmq.open(tmp_path / "store", read_only=True) as store:
        assert store.verify(deep=True).damage == []


def _filled(url: str, rows: int) -> set[bytes]:
    """A topic of six partitions, and its values, which have their places."""
    with kmq.open(url) as store, store.producer() as producer:
        store.create_topic("t", partitions=6)
        store.create_topic("out")
        for partition in range(6):
            values = [b"%d" % (1_000 * partition + n) for n in range(rows)]
            producer.send_batch("t", values, partition=partition).result()
        return set(store.read("t").read_all()["value"].to_pylist())


def test_members_of_a_group_whose_clocks_jump_send_each_record_on_once(tmp_path: Path):
    url = str(tmp_path / "store")
    values = _filled(url, 50)
    _told(_FORWARD, url, 0)
    with kmq.open(url, read_only=True) as store:
        sent = [int(value) for value in store.read("out").read_all()["value"].to_pylist()]
    assert len(sent) == len(values)
    assert {b"%d" % value for value in sent} == values
    for partition in range(6):
        of_one = [value for value in sent if value // 1_000 == partition]
        assert of_one == sorted(of_one)


def test_orderly_consumers_whose_clocks_jump_get_each_record_once_and_in_order(tmp_path: Path):
    url = str(tmp_path / "store")
    values = _filled(url, 50)
    told = _told(_IN_ORDER, url, 100)
    assert sorted(chain(*told)) == sorted(map(int, values))
    for of_one in told:
        assert sorted(of_one, key=lambda value: value // 1_000) == sorted(of_one)
