"""What the processes of the end-to-end tests do; each is started with the URL of one store."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import kmq_spark as kmq
from kmq_spark.errors import LeaseExpiredError

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.e2e.workers"])
TOPIC = "t"
QUEUES = "inbox"


@contextmanager
def running(work: Any, *arguments: Any) -> Iterator[tuple[Any, Connection]]:
    """A process that does this work with a pipe as last argument, and the other end of the pipe."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def produce(url: str, name: str, count: int, durability: str, pipe: Connection) -> None:
    """Send records in all ways, numbered from 0; tell the places that were acknowledged."""
    pipe.recv()
    with kmq.open(url, durability=durability) as store, store.producer(linger=0.001) as producer:
        sent = []
        for number in range(count):
            value = f"{name}:{number}".encode()
            if number % 20 == 7:
                sent.append(producer.send_batch(TOPIC, [value]))
            else:
                sent.append(producer.send(TOPIC, value, str(number % 5)))
        places = [future.result(60) for future in sent]
    flat = [place[0] if isinstance(place, list) else place for place in places]
    pipe.send([(place.partition, place.offset) for place in flat])


def consume(url: str, count: int, pipe: Connection) -> None:
    """Read until so many records came; tell where each was and what it says."""
    with kmq.open(url) as store, store.consumer(topics=[TOPIC]) as consumer:
        pipe.send("ready")
        found = []
        while len(found) < count:
            found += consumer.consume(1_000, timeout=30)
        pipe.send([(each.partition, each.offset, (each.value or b"").decode()) for each in found])


def produce_for_ever(url: str, durability: str, pipe: Connection) -> None:
    """Send until killed; tell each number whose record is acknowledged."""
    store = kmq.open(url, durability=durability)
    producer = store.producer(linger=0.0)
    number = 0
    while True:
        producer.send(
            TOPIC, b"%d" % number, partition=0,
            on_delivery=lambda error, _, number=number: error or pipe.send(number),
        )  # fmt: skip
        number += 1
        time.sleep(0.0003)


def be_a_member(url: str, pipe: Connection) -> None:
    """Join group `g`, take three records, commit, tell, take more, and wait to be killed."""
    store = kmq.open(url)
    consumer = store.consumer("g", topics=[TOPIC])
    taken = [(record.value or b"").decode() for record in consumer.consume(3)]
    consumer.commit()
    consumer.consume(3)
    pipe.send(taken)
    time.sleep(600)


def wait_for_one(url: str, pipe: Connection) -> None:
    """Wait for a record in idle; tell the CPU seconds that the wait took, and the record."""
    with kmq.open(url) as store:
        consumer = store.consumer(topics=[TOPIC], auto_offset_reset="latest")
        consumer.poll(timeout=0.2)
        before = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send("waiting")
        record = consumer.poll(timeout=60)
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert record is not None
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        pipe.send((seconds, (record.value or b"").decode()))


def serve_forked(url: str, children: int, pipe: Connection) -> None:
    """As pre-forking servers do: open everything, then fork children that all use it."""
    store = kmq.open(url)
    producer = store.producer()
    producer.send(TOPIC, b"parent:0").result(30)
    started = []
    for child in range(children):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                for number in range(50):
                    producer.send(TOPIC, f"child{child}:{number}".encode())
                code = producer.flush(60)
            finally:
                os._exit(code)
        started.append(process)
    producer.send(TOPIC, b"parent:1").result(30)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]
    producer.send(TOPIC, b"parent:2").result(30)
    pipe.send(codes)


def put_and_delete_for_ever(url: str, name: str, pipe: Connection) -> None:
    """Put numbered messages to a few queues and end some until killed; tell those acknowledged."""
    store = kmq.open(url)
    queues = store.keyed_queues(QUEUES)
    number = 0
    while True:
        batch = [(f"q{n % 5}", b"%s:%d" % (name.encode(), n)) for n in range(number, number + 7)]
        indexes = list(queues.put_batch([q for q, _ in batch], [m for _, m in batch]))
        pipe.send([(*each, index) for each, index in zip(batch, indexes, strict=True)])
        number += len(batch)
        queues.delete(f"q{number % 5}", f"q{number % 3}")


def receive_for_ever(url: str, name: str, pipe: Connection) -> None:
    """Receive from a few queues and acknowledge until killed; tell what was acknowledged."""
    queues = kmq.open(url).keyed_queues(QUEUES)
    while True:
        for number in range(5):
            held = queues.receive(f"q{number}", 2, lock_timeout=1.0)
            with suppress(LeaseExpiredError):
                queues.ack(held)
                if held:
                    pipe.send([(each.queue, each.value, each.index) for each in held])


def put_for_ever(url: str, name: str, pipe: Connection) -> None:
    """Put numbered messages to a few queues in all ways until killed; tell those acknowledged."""
    store = kmq.open(url)
    queues = store.keyed_queues(QUEUES)
    number = 0
    while True:
        batch = [(f"q{n % 5}", b"%s:%d" % (name.encode(), n)) for n in range(number, number + 8)]
        if number % 3:
            indexes = list(queues.put_batch([q for q, _ in batch], [m for _, m in batch]))
        else:
            indexes = [put.result() for put in [queues.put(*each) for each in batch]]
        pipe.send([(*each, index) for each, index in zip(batch, indexes, strict=True)])
        number += len(batch)
