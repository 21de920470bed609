"""The messaging race in small: a killed producing process, then another one that reads everything.

Finds: messages that `flush` did not bring to the store, gaps, duplicates and inversions of a
producer's messages, a queue that gets what was sent to another, a position that a kill loses.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kmq_spark import openmessaging as oms
from tests.e2e import workers

pytestmark = pytest.mark.e2e

PRODUCERS, MESSAGES = 4, 3_000
TOPICS, QUEUES = [f"TOPIC_{n}" for n in range(8)], [f"QUEUE_{n}" for n in range(4)]


def _produce(path: str, pipe: Connection) -> None:
    """Send from several threads, flush in each, and wait to be killed."""
    settings = oms.KeyValue().put("STORE_PATH", path)

    def send_all(label: str) -> None:
        producer, counts = oms.Producer(settings), Counter[str]()
        for number in range(MESSAGES):
            is_for_queue = number % 10 == 0
            name = QUEUES[number // 10 % 4] if is_for_queue else TOPICS[number % 8]
            body = f"{label}_{counts[name]}".encode()
            message = (
                producer.create_bytes_message_to_queue(name, body)
                if is_for_queue
                else producer.create_bytes_message_to_topic(name, body)
            )
            producer.send(message.put_headers("h", number).put_properties("p", 0.5 * number))
            counts[name] += 1
        producer.flush()

    threads = [threading.Thread(target=send_all, args=(f"P{n}",)) for n in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send("flushed")
    pipe.recv()


def _consume(path: str, queue: str, topics: list[str], pipe: Connection) -> None:
    """Pull everything; tell what is wrong and how much there was."""
    consumer = oms.PullConsumer(oms.KeyValue().put("STORE_PATH", path))
    consumer.attach_queue(queue, topics)
    expected, wrong = Counter[tuple[str | None, str]](), []
    for message in iter(consumer.poll, None):
        topic, own = (message.headers().get_string(name) for name in ("Topic", "Queue"))
        label, number = (message.get_body() or b"").decode().split("_")
        place = (topic or own, label)
        fits = (topic in topics) if own is None else (own == queue and topic is None)
        if int(number) != expected[place] or not fits:
            wrong.append((place, number))
        if message.properties().get_double("p") != 0.5 * message.headers().get_int("h"):
            wrong.append((place, "content"))
        expected[place] += 1
    pipe.send((wrong[:5], sum(expected.values())))
    pipe.recv()


def _killed(work: object, *arguments: object) -> object:
    """What a process tells before it is killed."""
    with workers.running(work, *arguments) as (process, pipe):
        told = pipe.recv()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    return told


def test_another_process_reads_everything_in_order_after_a_kill(tmp_path: Path):
    path = str(tmp_path / "store")
    assert _killed(_produce, path) == "flushed"
    direct, bound = PRODUCERS * MESSAGES // 10, PRODUCERS * MESSAGES * 9 // 10
    total = 0
    for number, queue in enumerate(QUEUES):
        topics = TOPICS[number : number + 5]
        wrong, count = _killed(_consume, path, queue, topics)  # type: ignore[misc]
        assert wrong == []
        total += count
    shares = [sum(n % 10 != 0 and n % 8 == t for n in range(MESSAGES)) for t in range(8)]
    assert sum(shares) * PRODUCERS == bound
    read = sum(shares[t] for number in range(4) for t in range(number, number + 5))
    assert total == direct + read * PRODUCERS
    # Who read to the end has stored that, though it was killed.
    assert _killed(_consume, path, QUEUES[0], TOPICS[:5]) == ([], 0)
