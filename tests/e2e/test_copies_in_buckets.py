"""`kmq copy` from a disk to a bucket and back, over HTTP, killed in the middle on both ways.

Finds a copy that comes back with another record, offset, timestamp, id, group or queue than the
store has that it was made of.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import kmq_spark as kmq
from tests.support.fault_proxy import Fault, FaultProxy, Request
from tests.support.s3 import S3Server

LONG = 3600.0


@pytest.fixture
def proxy(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(moto, hang_seconds=0.0) as started:
        for name, value in moto.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", started.endpoint)
        yield started


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store with sealed, trimmed, compacted and unsealed records, a group and two queues."""
    url = str(tmp_path / "source")
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        store.create_topic("plain", partitions=3)
        store.create_topic("newest", cleanup="compact")
        for n in range(300):
            facts = {"headers": {"h": f"{n}"}, "timestamp": datetime.fromtimestamp(n, UTC)}
            producer.send("plain", b"v%d" % n, key=b"k%d" % n, **facts)  # type: ignore[arg-type]
            producer.send("newest", b"n%d" % n, key=b"k%d" % (n % 10))
        producer.flush()
        store.seal()
        store.compact("newest")
        store.trim("plain", {0: 20})
        producer.send_batch("plain", [b"tail%d" % n for n in range(50)]).result()
        store.set_group_offsets("readers", {"plain": {0: 30, 1: 5}})
        for name in ("q", "r"):
            store.create_queue(name, topics=["plain"], lock_timeout=LONG)
            with store.queue(name) as receiver:
                receiver.ack(receiver.receive(9)[3:])
                producer.send_to_queue(name, b"sent").result()
    return url


def _contents(url: str) -> dict[str, Any]:
    """All that a copy must keep."""
    with kmq.open(url, read_only=True) as store:
        topics = {topic.name: topic for topic in store.topics()}
        assert store.verify(deep=True).ok
        return {
            "topics": topics,
            "ids": {name: store.log.state.topic(name).id for name in topics},
            "offsets": {name: store.offsets(name) for name in topics},
            "records": {name: store.read(name).read_all().to_pylist() for name in topics},
            "group": store.describe_group("readers").committed,
            "queues": store.queues(),
        }


def _copy(source: str, target: str) -> subprocess.Popen[str]:
    code = "import sys; from kmq_spark.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "copy", source, target, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _copied(source: str, target: str) -> dict[str, Any]:
    process = _copy(source, target)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(output)
    return report


def _killed_at(proxy: FaultProxy, wanted: Callable[[Request], bool], nth: int) -> SimpleQueue[int]:
    """Have whoever copies killed at its nth request of a kind; the queue is to tell who it is."""
    copier, left = SimpleQueue[int](), [nth]

    def choose(request: Request) -> Fault | None:
        left[0] -= wanted(request)
        if left[0] or not wanted(request):
            return None
        os.kill(copier.get(timeout=60), signal.SIGKILL)
        return Fault.RESET_BEFORE

    proxy.choose = choose
    return copier


def _copied_in_two(
    proxy: FaultProxy, source: str, target: str, wanted: Callable[[Request], bool], nth: int
) -> dict[str, Any]:
    """The report of a copy that goes on where one was killed at its nth request of a kind."""
    copier = _killed_at(proxy, wanted, nth)
    process = _copy(source, target)
    copier.put(process.pid)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    proxy.choose = lambda request: None
    return _copied(source, target)


def _puts_a_segment(request: Request) -> bool:
    return request.method == "PUT" and "/segments/" in request.path


def _gets_a_segment(request: Request) -> bool:
    return request.method == "GET" and "/segments/" in request.path and not request.is_list


def test_a_store_goes_to_a_bucket_and_back_whole_though_each_copy_is_killed(
    proxy: FaultProxy, source: str, tmp_path: Path
):
    bucket, back = proxy.new_url(), str(tmp_path / "back")
    wanted = _contents(source)
    rows = sum(map(len, wanted["records"].values()))
    assert 0 < _copied_in_two(proxy, source, bucket, _puts_a_segment, 3)["rows"] < rows
    assert _contents(bucket) == wanted
    assert 0 < _copied_in_two(proxy, bucket, back, _gets_a_segment, 3)["rows"] < rows
    assert _contents(back) == wanted
