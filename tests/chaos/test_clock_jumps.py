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
