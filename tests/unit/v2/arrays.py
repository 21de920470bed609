"""What the tests of Kmq's version 2 do again and again."""

from __future__ import annotations

import threading
from typing import Any

from kmq_spark.v2 import Kmq, KmqBroker, KmqMessage, KmqProducer

TOPIC = "kk.test"


def said(*bodies: Any) -> list[KmqMessage]:
    """A message with each body."""
    return [KmqMessage(None, body) for body in bodies]


def in_transactions(broker: KmqBroker) -> KmqProducer:
    """A producer that may begin transactions."""
    producer = broker.create_producer()
    producer.auto_commit = False
    return producer


def bodies(array: Kmq, consumer_id: str = "c") -> list[Any]:
    """All that there is for a consumer."""
    found = []
    while (message := array.poll(consumer_id)) is not None:
        found.append(message.body)
    return found


def run_in_threads(work: Any, threads: int) -> None:
    """Run it in so many threads, with their numbers, to the end."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert failures == []
