"""A store with something of everything, and what `kmq serve` shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from threading import Thread

import kmq_spark as kmq
from kmq_spark.server.listening import Listener
from kmq_spark.server.view import View
from kmq_storage.tables.columns import COLUMNS

#: Stands in every key, value and header.
SECRET = b"S3CRET"
ODD = "odd.%3Cb%3E_-name"
#: Every address.
ALL = ("/", "/metrics", "/health", *(f"/tables/{name}" for name in COLUMNS))


def make_store(url: str) -> None:
    """Topics, one with an odd name, a group that is behind, a queue with records everywhere."""
    with kmq.open(url, durability="os", maintenance=False) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic(ODD)
        store.create_queue("mails", topics=["orders"], max_deliveries=1, backoff=(0.0,))
        with store.producer() as producer:
            for number in range(6):
                producer.send(
                    "orders",
                    SECRET,
                    key=SECRET,
                    headers={"h": SECRET},
                    properties={"p": SECRET.decode()},
                    partition=number % 2,
                )
            producer.send(ODD, SECRET)
            producer.send_to_queue("mails", SECRET, delay=900.0)
        store.set_group_offsets("audit", {"orders": {0: 1}})
        _receive(store)
        store.seal()


def _receive(store: kmq.Store) -> None:
    with store.queue("mails") as queue:
        done, failed = queue.receive(2, timeout=9.0)
        done.ack()
        failed.reject("as the test says")


@contextmanager
def listening(url: str | Path, host: str = "127.0.0.1") -> Iterator[Listener]:
    """What listens for this store at a free port."""
    view = View(lambda: kmq.open(url, create=False, read_only=True))
    with Listener(host, 0, view) as listener:
        listener.timeout = 0.01
        thread = Thread(target=listener.serve)
        thread.start()
        try:
            yield listener
        finally:
            listener.end()
            thread.join()
            view.close()


def ask(
    listener: Listener, target: str, method: str = "GET", **headers: str
) -> tuple[int, HTTPMessage, bytes]:
    """Status, headers and content of an answer."""
    connection = HTTPConnection(listener.host, listener.port, timeout=60)
    try:
        connection.request(method, target, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()
