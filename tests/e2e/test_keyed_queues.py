"""Several processes that put to the same keyed queues, killed while they do.

Finds: messages that are lost or doubled, indexes that two of them were told, or that have a gap;
messages of a former life of a queue that is deleted meanwhile; messages that are received again
though they were acknowledged, or never.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.e2e import workers

pytestmark = pytest.mark.e2e

_PROCESSES, _ROUNDS, _FEW = 3, 30, 8


def _told(pipe: Connection) -> list[tuple[str, bytes, int]]:
    """What a process was told before it was killed."""
    told: list[tuple[str, bytes, int]] = []
    with suppress(EOFError, OSError):
        while True:
            told += pipe.recv()
    return told


def test_killed_processes_leave_queues_without_gaps_and_every_message_where_it_was_told(
    tmp_path: Path,
):
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        queues = store.keyed_queues(workers.QUEUES)
        with ExitStack() as stack:
            started = [
                stack.enter_context(workers.running(workers.put_for_ever, url, f"p{n}"))
                for n in range(_PROCESSES)
            ]
            told = [pipe.recv() for _, pipe in started for _ in range(_ROUNDS)]
            store.seal()
            store.checkpoint()
            for process, _ in started:
                process.kill()
                process.join()
            acknowledged = [each for found in told for each in found]
            acknowledged += [each for _, pipe in started for each in _told(pipe)]
    with kmq.open(url) as store:
        queues = store.keyed_queues(workers.QUEUES)
        stored = {name: queues.get(name, 0, 10**6) for name in queues.names()}
        assert {name: queues.size(name) for name in stored} == {
            n: len(s) for n, s in stored.items()
        }
    assert len(acknowledged) >= _PROCESSES * _ROUNDS
    for queue, message, index in acknowledged:
        assert stored[queue][index] == message
    by_process: dict[bytes, list[int]] = defaultdict(list)
    for messages in stored.values():
        in_order = defaultdict(list)
        for message in messages:
            process_name, number = message.split(b":")
            in_order[process_name].append(int(number))
        for process_name, numbers in in_order.items():
            assert numbers == sorted(numbers)
            by_process[process_name] += numbers
    for numbers in by_process.values():
        assert sorted(numbers) == list(range(len(numbers)))


def test_killed_processes_that_put_and_delete_agree_on_what_each_queue_has(tmp_path: Path):
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        store.keyed_queues(workers.QUEUES)
        with ExitStack() as stack:
            started = [
                stack.enter_context(workers.running(workers.put_and_delete_for_ever, url, f"p{n}"))
                for n in range(_PROCESSES)
            ]
            told = [pipe.recv() for _, pipe in started for _ in range(_FEW)]
            for process, _ in started:
                process.kill()
                process.join()
            told += [_told(pipe) for _, pipe in started]
        store.create_topic("behind")  # what was written and not told is seen from a commit on
        records = store.read(workers.QUEUES, columns=["key", "value"]).read_all().to_pylist()
        lives: dict[bytes, list[bytes]] = defaultdict(list)
        indexes: dict[tuple[bytes, bytes], int] = {}
        for record in records:
            if record["value"] is None:
                lives.pop(record["key"], None)
                continue
            indexes[record["key"], record["value"]] = len(lives[record["key"]])
            lives[record["key"]].append(record["value"])
        for queue, message, index in (each for found in told for each in found):
            assert indexes[queue.encode(), message] == index
        for _ in range(3):
            queues = store.keyed_queues(workers.QUEUES)
            assert {name: queues.get(name, 0, 10**6) for name in queues.names()} == {
                name.decode(): messages for name, messages in lives.items()
            }
            store.seal()
            store.compact(workers.QUEUES)


def test_killed_receivers_leave_each_message_to_be_acknowledged_once(tmp_path: Path):
    url = str(tmp_path / "store")
    with kmq.open(url) as store:
        queues = store.keyed_queues(workers.QUEUES)
        messages = [(f"q{n % 5}", b"%d" % n, n // 5) for n in range(120)]
        queues.put_batch([q for q, _, _ in messages], [m for _, m, _ in messages])
        with ExitStack() as stack:
            started = [
                stack.enter_context(workers.running(workers.receive_for_ever, url, f"p{n}"))
                for n in range(_PROCESSES)
            ]
            told: list[list[tuple[str, bytes, int]]] = []
            for _, pipe in started:
                for _ in range(_FEW):
                    while not pipe.poll(0.2):  # others had it all
                        messages.append(("q0", b"more", queues.put("q0", b"more").result()))
                    told.append(pipe.recv())
            store.seal()
            for process, _ in started:
                process.kill()
                process.join()
            told += [_told(pipe) for _, pipe in started]
        acknowledged = [each for found in told for each in found]
        for queue in queues.names():
            while queues.lag(queue):
                held = queues.receive(queue, 99, timeout=60)
                acknowledged += [(queue, each.value, each.index) for each in held]
                queues.ack(held)
    assert len(set(acknowledged)) == len(acknowledged), "none comes again that was acknowledged"
    # A receiver that was killed behind its acknowledgement told nobody of two messages at most.
    assert set(acknowledged) <= set(messages)
    assert len(messages) - len(acknowledged) <= 2 * _PROCESSES
