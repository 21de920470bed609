"""kmq for asyncio: store, producer, consumer and queue under the same names, to be awaited.

Each handle has a thread of its own, so its calls keep their order, and the event loop never waits
for a disk. Cancelling a waiting call loses nothing: records that it took count as not handed out.
Arguments and errors are those of the twins in `kmq_spark`, where `help` tells them.
"""

from kmq_spark.aio.handles import Opening
from kmq_spark.aio.keyed import KeyedDelivery, KeyedQueues
from kmq_spark.aio.receiving import Consumer, Delivery, OrderlyConsumer, Queue
from kmq_spark.aio.sending import Producer, Sent, Transaction
from kmq_spark.aio.stores import Store, open  # noqa: A004 - its name

__all__ = [
    "Consumer", "Delivery", "KeyedDelivery", "KeyedQueues", "Opening", "OrderlyConsumer",
    "Producer", "Queue", "Sent", "Store", "Transaction", "open",
]  # fmt: skip
