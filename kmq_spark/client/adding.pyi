from typing import Any

from kmq_spark.client.metadata import RecordMetadata
from kmq_spark.client.pending import Pending
from kmq_spark.client.send_future import SendFuture

class Adding:
    def __init__(self, pending: Pending, row_bytes: int) -> None: ...
    def add(
        self, topic: str, value: Any, key: bytes | None, extras: Any, on_delivery: Any, /
    ) -> SendFuture[RecordMetadata]: ...
