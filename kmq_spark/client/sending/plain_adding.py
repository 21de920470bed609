"""Adding records where nothing is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.records.metadata import RecordMetadata
from kmq_storage.names import check_name, queue_of_log

if TYPE_CHECKING:
    from kmq_spark.client.sending.pending import Pending


class PlainAdding:
    """Adds records to `pending`: to topics by names that users gave, or to queues' own logs."""

    def __init__(self, pending: Pending, row_bytes: int) -> None:
        self.add_to_queue = pending.add_any

    def add(self, topic: str, *record: Any) -> SendFuture[RecordMetadata]:
        """Add a record to a topic; the name of a queue's own log is no topic's."""
        if isinstance(topic, str) and queue_of_log(topic) is not None:
            check_name("topic", topic)
        return self.add_to_queue(topic, *record)
