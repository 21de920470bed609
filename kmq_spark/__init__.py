"""kmq: a message log and queue without a server, native to Spark.

`kmq_spark.open(url)` opens a store, whose `producer`, `consumer` and `queue` send and receive
records; `spark.read.format("kmq")` and `spark.readStream` read them as DataFrames.

Importing this starts nothing and imports no pyspark. Each name is loaded when it is first used, so
that a worker of Spark loads no producer.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kmq_spark import errors
from kmq_spark.errors import *  # noqa: F403 - named in one place

if TYPE_CHECKING:
    from kmq_spark.client.consuming.consumer import Consumer
    from kmq_spark.client.keyed.queues import KeyedQueues
    from kmq_spark.client.keyed.receiving import KeyedDelivery
    from kmq_spark.client.opening import clone_store as clone
    from kmq_spark.client.opening import open_store as open  # noqa: A004 - the name users type
    from kmq_spark.client.orderly.consumer import OrderlyConsumer
    from kmq_spark.client.orderly.process_queue import ProcessQueue, QueueState
    from kmq_spark.client.orderly.rules import OrderlyContext, OrderlyStatus
    from kmq_spark.client.queues.delivery import Delivery
    from kmq_spark.client.queues.queue import Queue
    from kmq_spark.client.records.metadata import BatchMetadata, RecordMetadata
    from kmq_spark.client.records.record import Record
    from kmq_spark.client.sending.producer import Producer
    from kmq_spark.client.store import Store
    from kmq_spark.datasource.groups.lag import lag
    from kmq_spark.datasource.incremental import incremental
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
    from kmq_storage.model import (
        Commit,
        GroupInfo,
        MemberInfo,
        QueueInfo,
        QueueSettings,
        QueueStats,
        TopicInfo,
        TopicSettings,
    )
    from kmq_storage.tracing import TraceStep

__version__ = "0.1.0"

__all__ = [
    "BatchMetadata",
    "CheckpointReport",
    "CloneReport",
    "CollectReport",
    "Commit",
    "CompactReport",
    "Consumer",
    "Damage",
    "Delivery",
    "GroupInfo",
    "KeyedDelivery",
    "KeyedQueues",
    "MaintainReport",
    "MemberInfo",
    "OrderlyConsumer",
    "OrderlyContext",
    "OrderlyStatus",
    "ProcessQueue",
    "Producer",
    "Queue",
    "QueueInfo",
    "QueueSettings",
    "QueueStats",
    "QueueState",
    "Record",
    "RecordMetadata",
    "Report",
    "SealReport",
    "Store",
    "StoreStats",
    "TopicInfo",
    "TopicSettings",
    "TraceStep",
    "TrimReport",
    "clone",
    "open",
]
__all__ += errors.__all__
if sys.modules.get("pyspark") or find_spec("pyspark"):  # or `import *` and `help` fail
    __all__ += ["KmqDataSource", "incremental", "lag", "register"]

#: The module of each name that is loaded on first use; `module:name` where it has another name.
_LATER = {
    **dict.fromkeys(("BatchMetadata", "RecordMetadata"), "kmq_spark.client.records.metadata"),
    "Consumer": "kmq_spark.client.consuming.consumer",
    "KeyedDelivery": "kmq_spark.client.keyed.receiving",
    "KeyedQueues": "kmq_spark.client.keyed.queues",
    "OrderlyConsumer": "kmq_spark.client.orderly.consumer",
    **dict.fromkeys(("OrderlyContext", "OrderlyStatus"), "kmq_spark.client.orderly.rules"),
    **dict.fromkeys(("ProcessQueue", "QueueState"), "kmq_spark.client.orderly.process_queue"),
    "Producer": "kmq_spark.client.sending.producer",
    "Queue": "kmq_spark.client.queues.queue",
    "Delivery": "kmq_spark.client.queues.delivery",
    "Record": "kmq_spark.client.records.record",
    "Store": "kmq_spark.client.store",
    "clone": "kmq_spark.client.opening:clone_store",
    "open": "kmq_spark.client.opening:open_store",
    "KmqDataSource": "kmq_spark.datasource.source",
    "incremental": "kmq_spark.datasource.incremental",
    "lag": "kmq_spark.datasource.groups.lag",
    "register": "kmq_spark.datasource.register",
    **dict.fromkeys(("Damage", "Report"), "kmq_storage.integrity.report"),
    **dict.fromkeys(
        (
            "CheckpointReport",
            "CloneReport",
            "CollectReport",
            "CompactReport",
            "MaintainReport",
            "SealReport",
            "StoreStats",
            "TrimReport",
        ),
        "kmq_storage.maintenance.reports",
    ),
    **dict.fromkeys(
        (
            *("Commit", "GroupInfo", "MemberInfo", "QueueInfo", "QueueSettings", "QueueStats"),
            *("TopicInfo", "TopicSettings"),
        ),
        "kmq_storage.model",
    ),
    "TraceStep": "kmq_storage.tracing",
}
#: Modules that need no import of their own: `kmq_spark.aio.open`.
_MODULES = ("aio", "openmessaging", "v2")


def __getattr__(name: str) -> Any:
    """Load a name when it is first used."""
    if name not in (*_LATER, *_MODULES):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        module, _, own = _LATER[name].partition(":")
        found = globals()[name] = getattr(import_module(module), own or name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise ModuleNotFoundError(
            f"kmq_spark.{name} needs Spark: pip install 'kmq-spark[spark]'", name="pyspark"
        ) from None
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
