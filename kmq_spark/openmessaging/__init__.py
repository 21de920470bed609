"""OpenMessaging's interface over kmq: producers, and pull and push consumers of queues.

Every name may also be written in camelCase (`createBytesMessageToTopic`).
"""

from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.message import BytesMessage, MessageHeader, SendResult
from kmq_spark.openmessaging.partition import PartitionConsumer, PartitionIterator
from kmq_spark.openmessaging.producer import BatchToPartition, Producer
from kmq_spark.openmessaging.pull import PullConsumer
from kmq_spark.openmessaging.push import PushConsumer, ReceivedMessageContext

__all__ = [
    "BatchToPartition",
    "BytesMessage",
    "KeyValue",
    "MessageHeader",
    "PartitionConsumer",
    "PartitionIterator",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessageContext",
    "SendResult",
]
