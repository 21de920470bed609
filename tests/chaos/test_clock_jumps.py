"""Processes whose clocks jump by hours and years, forth and back, while they work on one store.

Finds a place where a clock decides what is stored: lost or doubled records, times that go back.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import kmq_spark as kmq
from tests.support.s3 import S3Server

pytestmark = pytest.mark.chaos

_WORK = """
import random, sys, time
import kmq_spark as kmq
from kmq_storage.environment import Environment

url, name, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(name)
jumps = (0, 0, 0, 0, -3_600, 3_600, -86_400 * 365, 86_400 * 365)
clock = Environment(now_ns=lambda: time.time_ns() + rng.choice(jumps) * 10**9)
with kmq.open(url, environment=clock) as store, store.producer(linger=0.0) as producer:
    with store.consumer(name, topics=["t"]) as consumer:
        for number in range(records):
            print(producer.send("t", f"{name}-{number}").result(120).offset, flush=True)
            if number % 20 == 0:
                consumer.consume(10, timeout=0.1)
                consumer.commit()
"""


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
    names = ("a", "b", "c")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORK, url, name, str(records)], stdout=subprocess.PIPE
        )
        for name in names
    ]
    told = [
        [int(line) for line in worker.communicate(timeout=250)[0].split()] for worker in workers
    ]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    with kmq.open(url, read_only=True) as store:
        values = store.read("t").read_all()["value"].to_pylist()
        times = [commit.time for commit in store.commits()]
        assert store.verify(deep=True).damage == []
    assert len(values) == len(names) * records
    for name, offsets in zip(names, told, strict=True):
        assert [values[at] for at in offsets] == [f"{name}-{n}".encode() for n in range(records)]
        assert offsets == sorted(offsets)
    assert times == sorted(set(times))
