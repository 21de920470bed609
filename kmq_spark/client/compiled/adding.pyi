from typing import Any

from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.records.metadata import RecordMetadata
from kmq_spark.client.sending.pending import Pending

class Adding:
    def __init__(self, pending: Pending, row_bytes: int) -> None: ...
    def add(
        self, topic: str, value: Any, key: bytes | None, extras: Any, on_delivery: Any, /
    ) -> SendFuture[RecordMetadata]: ...
    def add_to_queue(
        self, topic: str, value: Any, key: bytes | None, extras: Any, on_delivery: Any, /
    ) -> SendFuture[RecordMetadata]: ...
