"""The asyncio twins of store, producer, consumer and queue: the same names, to be awaited.

Each handle has one thread of its own, so that its calls keep their order and the event loop
never waits for a disk. A wait that is cancelled loses nothing: what it took was not handed out.
"""

from kmq_spark.aio.handles import Opening
from kmq_spark.aio.keyed import KeyedQueues
from kmq_spark.aio.receiving import Consumer, Delivery, OrderlyConsumer, Queue
from kmq_spark.aio.sending import Producer, Sent, Transaction
from kmq_spark.aio.stores import Store, open  # noqa: A004 - its name

__all__ = [
    "Consumer", "Delivery", "KeyedQueues", "Opening", "OrderlyConsumer", "Producer", "Queue",
    "Sent", "Store", "Transaction", "open",
]  # fmt: skip
