"""The process that gets killed: `python -m kmq_spark.demo.produce STORE TOPIC --rate R`.

It keeps no state of its own. The flights have a fixed order, and a producer's commits are atomic
and in the order of its calls. So the topic always has the first n flights, where n is its number of
records, and a new process skips as many.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import kmq_spark as kmq
from kmq_spark.demo import flights, messages
from kmq_storage.environment import SYSTEM, Environment

#: Records in one call of `send_arrow`: small enough that a kill finds some of them on their way.
BATCH_ROWS = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the flights that the topic doesn't hold yet, then return 0."""
    parser = argparse.ArgumentParser(prog="python -m kmq_spark.demo.produce")
    parser.add_argument("store")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, required=True, help="flights per second")
    parser.add_argument("--limit", type=int, help="stop after this many flights of the year")
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the whole process group; the parent process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    table = flights.read_flights(options.limit)
    data = messages.encode(table, key=table["carrier"])
    with kmq.open(options.store, create=False) as store:
        done = durable_records(store, options.topic)
        print(f"{done} of {data.num_rows} flights are in the topic; sending the rest", flush=True)
        send(store, options.topic, data.slice(done), rate=options.rate)
    print("all flights are durable", flush=True)
    return 0


def durable_records(store: kmq.Store, topic: str) -> int:
    """How many records the topic holds, over all partitions."""
    return sum(end - start for start, end in store.offsets(topic).values())


def send(
    store: kmq.Store, topic: str, data: Any, *, rate: float, environment: Environment = SYSTEM
) -> None:
    """Send the table's rows in their order, no faster than `rate`, and wait until all are durable.

    Raises: the error of the first delivery that failed; what follows it is not sent.
    """
    parent, started = os.getppid(), environment.monotonic()
    with store.producer() as producer:
        sent = []
        for first in range(0, data.num_rows, BATCH_ROWS):
            sent.append(producer.send_arrow(topic, data.slice(first, BATCH_ROWS)))
            ahead = started + first / rate - environment.monotonic()
            if ahead > 0:
                environment.sleep(ahead)
            if os.getppid() != parent:
                raise SystemExit("the demo is gone, so its producer stops")
        for future in sent:
            future.result()


if __name__ == "__main__":
    sys.exit(main())
