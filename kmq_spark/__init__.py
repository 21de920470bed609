"""kmq: a message log and queue without a server, native to Spark.

`kmq_spark.open(url)` gives a store; `spark.read.format("kmq")` reads it. Importing this starts
nothing and loads no pyspark; the client is loaded when it is asked for, since Spark's processes
do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kmq_spark.errors import (
    AlreadyExistsError,
    ClosedError,
    CommitOutcomeUnknownError,
    ConflictError,
    CorruptionError,
    DataLossError,
    FencedError,
    FormatVersionError,
    IllegalStateError,
    InvalidRequestError,
    KmqError,
    KmqTimeoutError,
    KmqWarning,
    LeaseExpiredError,
    NotFoundError,
    OffsetOutOfRangeError,
    QueueFullError,
    TransactionAbortedError,
    UnavailableError,
)
from kmq_storage.model import Commit, GroupInfo, MemberInfo, TopicInfo, TopicSettings

if TYPE_CHECKING:
    from kmq_spark.client.consumer import Consumer
    from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
    from kmq_spark.client.opening import clone_store as clone
    from kmq_spark.client.opening import open_store as open  # noqa: A004 - the name users type
    from kmq_spark.client.producer import Producer
    from kmq_spark.client.record import Record
    from kmq_spark.client.store import Store
    from kmq_spark.datasource.incremental import incremental
    from kmq_spark.datasource.lag import lag
    from kmq_spark.datasource.register import register
    from kmq_spark.datasource.source import KmqDataSource
    from kmq_storage.integrity.report import Damage, Report
    from kmq_storage.maintenance.reports import (
        CheckpointReport,
        CloneReport,
        CollectReport,
        CompactReport,
        MaintainReport,
        SealReport,
        StoreStats,
        TrimReport,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "BatchMetadata",
    "CheckpointReport",
    "CloneReport",
    "ClosedError",
    "CollectReport",
    "Commit",
    "CommitOutcomeUnknownError",
    "CompactReport",
    "ConflictError",
    "Consumer",
    "CorruptionError",
    "Damage",
    "DataLossError",
    "FencedError",
    "FormatVersionError",
    "GroupInfo",
    "IllegalStateError",
    "InvalidRequestError",
    "KmqDataSource",
    "KmqError",
    "KmqTimeoutError",
    "KmqWarning",
    "LeaseExpiredError",
    "MaintainReport",
    "MemberInfo",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "Producer",
    "QueueFullError",
    "Record",
    "RecordMetadata",
    "Report",
    "SealReport",
    "Store",
    "StoreStats",
    "TopicInfo",
    "TopicSettings",
    "TransactionAbortedError",
    "TrimReport",
    "UnavailableError",
    "clone",
    "incremental",
    "lag",
    "open",
    "register",
]

_REPORTS = "kmq_storage.maintenance.reports"
#: Where what is loaded late stands: what needs pyspark, or takes its time.
_LATER = {
    "BatchMetadata": "kmq_spark.client.metadata.BatchMetadata",
    "Consumer": "kmq_spark.client.consumer.Consumer",
    "Damage": "kmq_storage.integrity.report.Damage",
    "KmqDataSource": "kmq_spark.datasource.source.KmqDataSource",
    "Producer": "kmq_spark.client.producer.Producer",
    "Record": "kmq_spark.client.record.Record",
    "RecordMetadata": "kmq_spark.client.metadata.RecordMetadata",
    "Report": "kmq_storage.integrity.report.Report",
    "Store": "kmq_spark.client.store.Store",
    "clone": "kmq_spark.client.opening.clone_store",
    "incremental": "kmq_spark.datasource.incremental.incremental",
    "lag": "kmq_spark.datasource.lag.lag",
    "open": "kmq_spark.client.opening.open_store",
    "register": "kmq_spark.datasource.register.register",
    "CheckpointReport": f"{_REPORTS}.CheckpointReport",
    "CloneReport": f"{_REPORTS}.CloneReport",
    "CollectReport": f"{_REPORTS}.CollectReport",
    "CompactReport": f"{_REPORTS}.CompactReport",
    "MaintainReport": f"{_REPORTS}.MaintainReport",
    "SealReport": f"{_REPORTS}.SealReport",
    "StoreStats": f"{_REPORTS}.StoreStats",
    "TrimReport": f"{_REPORTS}.TrimReport",
}


def __getattr__(name: str) -> Any:
    """Load what is loaded late when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _LATER[name].rpartition(".")
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    """Every name, for those who look around before they ask."""
    return sorted({*globals(), *__all__})
