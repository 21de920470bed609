"""`kmq demo orders`: the demo of Kmq's version 2, a thousand orders and then two per transaction.

A thread polls while the orders are sent. Then each line that is typed sends a pair, until `q` or
`e`; without a terminal, three count as typed. The last pair is aborted: no consumer sees it.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import kmq_spark as kmq
from kmq_spark.v2 import KmqBroker, KmqMessage, KmqProducer
from kmq_storage.environment import SYSTEM

TOPIC = "kk.test"
ORDERS = 1_000
_PAIRS, _FIRST_ID, _FIRST_PAIR = "123", 1_000, 100_000
_POLL_MS = 100


@dataclass(slots=True)
class OrdersReport:
    """What was sent and what arrived; `in_order`: the same orders, in the order of the sends."""

    topic: str = TOPIC
    sent: int = 0
    received: int = 0
    pairs: int = 0
    aborted: int = 0
    in_order: bool = False


@dataclass(slots=True)
class _Receiving:
    """The thread that polls, and the orders that it got."""

    broker: KmqBroker
    orders: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False

    def run(self) -> None:
        """Poll until it is over and nothing more comes."""
        with self.broker.create_consumer() as consumer:
            consumer.subscribe(TOPIC)
            while (message := consumer.poll(_POLL_MS)) is not None or not self.is_over:
                if message is not None:
                    self.orders.append(message.body)


def main(store: str | None, *, keys: TextIO, out: TextIO) -> OrdersReport:
    """Run it in a store, or in one that is gone afterwards."""
    with _opened(store) as opened:
        broker = KmqBroker(opened)
        already = broker.create_topic(TOPIC).current_write_index
        receiving = _Receiving(broker)
        thread = threading.Thread(target=receiving.run, name="kmq-demo-orders")
        thread.start()
        try:
            report, sent = OrdersReport(), []
            with broker.create_producer() as producer:
                print(f"Sending {ORDERS} orders to topic {TOPIC} ...", file=out)
                sent += _send_orders(producer)
                producer.auto_commit = False
                for key in _typed(keys, out):
                    sent += _send_pair(producer, ord(key))
                    report.pairs += 1
                _abort_pair(producer)
                report.aborted += 1
        finally:
            receiving.is_over = True
            thread.join()
    received = receiving.orders[already:]
    report.sent, report.received = len(sent), len(received)
    report.in_order = received == sent
    return report


@contextmanager
def _opened(url: str | None) -> Iterator[kmq.Store]:
    with (
        tempfile.TemporaryDirectory(prefix="kmq-orders-") as folder,
        kmq.open(url or f"{folder}/store") as store,
    ):
        yield store


def _send_orders(producer: KmqProducer) -> list[dict[str, Any]]:
    orders = [_order(_FIRST_ID + number, 6.51) for number in range(ORDERS)]
    for order in orders:
        _check_taken(producer.send(TOPIC, KmqMessage(None, order)))
    return orders


def _send_pair(producer: KmqProducer, key: int) -> list[dict[str, Any]]:
    pair = [_order(_FIRST_PAIR + key + number, 6.52) for number in range(2)]
    producer.begin_transaction(TOPIC)
    try:
        for order in pair:
            _check_taken(producer.send(TOPIC, KmqMessage(None, order)))
        producer.commit_transaction(TOPIC)
    except BaseException:
        producer.abort_transaction(TOPIC)
        raise
    return pair


def _abort_pair(producer: KmqProducer) -> None:
    producer.begin_transaction(TOPIC)
    for number in range(2):
        producer.send_without_lock(TOPIC, KmqMessage(None, _order(number, 0.0)))
    producer.abort_transaction(TOPIC)


def _order(number: int, price: float) -> dict[str, Any]:
    return {"id": number, "ts": SYSTEM.now_us() // 1000, "symbol": "USD2CNY", "price": price}


def _check_taken(taken: bool) -> None:
    if not taken:
        raise kmq.QueueFullError(f"topic {TOPIC} is full: name another store", topic=TOPIC)


def _typed(keys: TextIO, out: TextIO) -> Iterator[str]:
    if not keys.isatty():
        yield from _PAIRS
        return
    print("Each key, and Enter, sends two orders in one transaction; q or e ends.", file=out)
    while (line := keys.readline()) and line.strip() not in ("q", "e"):
        yield from line.strip()


def in_words(report: OrdersReport) -> str:
    """The report as a line."""
    order = "in the order of the sends" if report.in_order else "NOT the orders that were sent"
    return (
        f"{report.sent} orders sent, {report.received} received, {order}; {report.pairs} pairs in "
        f"transactions, {report.aborted} aborted and never seen."
    )
