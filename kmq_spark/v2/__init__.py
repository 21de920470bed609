"""The interface of Kmq's version 2 over a store: arrays, named consumers, transactions.

Begin with `KmqBroker(store)`; docs/guide/v2.md tells how it differs from an array in memory.
"""

from kmq_spark.v2.broker import Kmq, KmqBroker, KmqConsumer
from kmq_spark.v2.message import KmqMessage
from kmq_spark.v2.producer import KmqProducer

__all__ = ["Kmq", "KmqBroker", "KmqConsumer", "KmqMessage", "KmqProducer"]
