"""Several processes on one store: together, killed, waiting and forked.

Finds: records that are lost, doubled or out of order when writers meet, acknowledgements that do
not survive a kill, a place in a group that a dead member keeps, and a wait that burns a core.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.e2e import workers

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with topic `t` of three partitions."""
    with kmq.open(tmp_path / "store") as store:
        store.create_topic(workers.TOPIC, partitions=3)
    return str(tmp_path / "store")


def _stored(url: str) -> list[tuple[int, int, str]]:
    with kmq.open(url) as store:
        table = store.read(workers.TOPIC, columns=["partition", "offset", "value"]).read_all()
    return [(p, o, v.decode()) for p, o, v in zip(*(c.to_pylist() for c in table), strict=True)]


def _by_sender(found: list[tuple[int, int, str]]) -> dict[str, list[int]]:
    by_sender: dict[str, list[int]] = defaultdict(list)
    for _, _, value in found:
        sender, number = value.split(":")
        by_sender[sender].append(int(number))
    return dict(by_sender)


def test_producers_and_consumers_of_many_processes_agree_on_one_log(url: str):
    producers, consumers, count = 4, 2, 400
    with ExitStack() as stack:
        readers = [
            stack.enter_context(workers.running(workers.consume, url, producers * count))[1]
            for _ in range(consumers)
        ]
        assert [reader.recv() for reader in readers] == ["ready"] * consumers
        senders = [
            stack.enter_context(
                workers.running(workers.produce, url, f"p{n}", count, ["fsync", "os"][n % 2])
            )[1]
            for n in range(producers)
        ]
        for sender in senders:
            sender.send("go")
        places = {f"p{n}": sender.recv() for n, sender in enumerate(senders)}
        seen = [reader.recv() for reader in readers]
    stored = _stored(url)
    for partition in range(3):
        offsets = [offset for p, offset, _ in stored if p == partition]
        assert offsets == list(range(len(offsets)))
    assert {s: sorted(n) for s, n in _by_sender(stored).items()} == {
        name: list(range(count)) for name in places
    }
    by_place = {(partition, offset): value for partition, offset, value in stored}
    for name, told in places.items():
        assert [by_place[place] for place in told] == [f"{name}:{n}" for n in range(count)]
    for found in seen:
        assert sorted(found) == stored
    for partition in range(3):
        for numbers in _by_sender([each for each in stored if each[0] == partition]).values():
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_every_acknowledged_record_of_a_killed_producer_is_there_once_in_order(
    url: str, durability: str
):
    with workers.running(workers.produce_for_ever, url, durability) as (process, acks):
        told = [acks.recv() for _ in range(300)]
        process.kill()
        process.join()
        try:
            while True:
                told.append(acks.recv())
        except (EOFError, OSError):
            pass  # what was told before the kill counts
    stored = [int(value) for _, _, value in _stored(url)]
    assert stored == list(range(len(stored)))
    assert told == list(range(len(told)))
    assert len(stored) >= len(told) >= 300


def test_a_killed_member_of_a_group_is_replaced_at_once_where_it_committed(url: str):
    with kmq.open(url) as store:
        with store.producer() as producer:
            producer.send_batch("t", [b"%d" % number for number in range(10)], partition=0)
        with workers.running(workers.be_a_member, url) as (process, pipe):
            assert pipe.recv() == ["0", "1", "2"]
            process.kill()
            process.join()
            with store.consumer("g", topics=["t"]) as successor:
                assert successor.position()["t"][0] == 3
                assert [record.value for record in successor.consume(2)] == [b"3", b"4"]
        assert store.describe_group("g").generation == 2


def test_a_waiting_consumer_costs_no_cpu_and_wakes(url: str):
    with (
        kmq.open(url, durability="os") as store,
        store.producer() as producer,
        workers.running(workers.wait_for_one, url) as (_, pipe),
    ):
        assert pipe.recv() == "waiting"
        time.sleep(3)
        producer.send("t", b"wake up").result(10)
        seconds, value = pipe.recv()
    assert value == "wake up"
    assert seconds < 0.2  # of three; a slow machine takes some for the record itself


def test_children_of_a_forking_server_all_produce_with_what_they_inherited(url: str):
    with workers.running(workers.serve_forked, url, 4) as (_, pipe):
        assert pipe.recv() == [0, 0, 0, 0]
    expected = {f"child{n}": list(range(50)) for n in range(4)} | {"parent": [0, 1, 2]}
    assert {s: sorted(n) for s, n in _by_sender(_stored(url)).items()} == expected
