"""What users may rely on, as literal lists: every addition shows up as a change of this file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import FunctionType
from typing import Any

import pytest

import kmq_spark
import kmq_spark.errors
import kmq_storage
from kmq_spark import aio, v2
from kmq_spark.cli.table import COMMANDS

ERRORS = {
    "KmqError": (Exception, "error", False),
    "InvalidRequestError": (ValueError, "invalid_request", False),
    "NotFoundError": (LookupError, "not_found", False),
    "AlreadyExistsError": (kmq_spark.KmqError, "already_exists", False),
    "ConflictError": (kmq_spark.KmqError, "conflict", True),
    "FencedError": (kmq_spark.KmqError, "fenced", False),
    "LeaseExpiredError": (kmq_spark.FencedError, "lease_expired", False),
    "OffsetOutOfRangeError": (LookupError, "offset_out_of_range", False),
    "DataLossError": (kmq_spark.KmqError, "data_loss", False),
    "QueueFullError": (BufferError, "queue_full", False),
    "TransactionAbortedError": (kmq_spark.KmqError, "transaction_aborted", False),
    "UnavailableError": (kmq_spark.KmqError, "unavailable", True),
    "CommitOutcomeUnknownError": (kmq_spark.UnavailableError, "commit_outcome_unknown", False),
    "CorruptionError": (kmq_spark.KmqError, "corruption", False),
    "FormatVersionError": (kmq_spark.CorruptionError, "format_version", False),
    "KmqTimeoutError": (TimeoutError, "timeout", True),
    "ClosedError": (kmq_spark.KmqError, "closed", False),
    "IllegalStateError": (RuntimeError, "illegal_state", False),
}

METHODS = {
    "Store": [
        "add_partitions",
        "alter_topic",
        "bind_queue",
        "checkpoint",
        "close",
        "collect",
        "commits",
        "compact",
        "consumer",
        "copy_group",
        "create_queue",
        "create_topic",
        "delete_group",
        "delete_queue",
        "delete_topic",
        "describe_group",
        "describe_topic",
        "find",
        "groups",
        "keyed_queues",
        "maintain",
        "offsets",
        "offsets_for_time",
        "orderly_consumer",
        "pin",
        "producer",
        "queue",
        "queues",
        "read",
        "repair",
        "replay",
        "seal",
        "set_group_offsets",
        "stats",
        "topics",
        "trace",
        "trim",
        "unbind_queue",
        "url",
        "verify",
    ],
    "Producer": [
        "abort_transaction",
        "begin_transaction",
        "close",
        "commit_transaction",
        "flush",
        "send",
        "send_arrow",
        "send_arrow_to_queue",
        "send_batch",
        "send_offsets_to_transaction",
        "send_to_queue",
        "transaction",
    ],
    "Consumer": [
        "assign",
        "assignment",
        "close",
        "commit",
        "committed",
        "consume",
        "consume_arrow",
        "lag",
        "pause",
        "poll",
        "position",
        "resume",
        "seek",
        "seek_to_beginning",
        "seek_to_end",
        "seek_to_time",
        "subscribe",
        "unsubscribe",
    ],
    "Queue": [
        *("ack", "close", "extend", "nack", "recall", "receive", "receive_arrow", "redrive"),
        *("reject", "state", "stats"),
    ],
    "Delivery": [
        *("ack", "count", "delivery_count", "extend", "headers", "hold", "index", "key"),
        *("locked_until", "nack", "offset", "partition", "place", "properties", "queue"),
        *("reject", "run", "timestamp", "topic", "value"),
    ],
    "KeyedQueues": [
        *("ack", "close", "delete", "flush", "get", "get_arrow", "get_many", "lag", "names"),
        *("put", "put_arrow", "put_batch", "receive", "size", "span"),
    ],
    "KeyedDelivery": [
        *("ack", "check_topic", "delivery_count", "extend", "group", "index", "locked_until"),
        *("nack", "queue", "topic", "value"),
    ],
    "OrderlyConsumer": ["close", "join", "process_queues", "start"],
    "OrderlyContext": [
        "auto_commit",
        "partition",
        "reconsume_times",
        "suspend_current_queue_time",
        "topic",
    ],
    "ProcessQueue": [
        "change",
        "commit",
        "make_message_to_consume_again",
        "put_messages",
        "rollback",
        "state",
        "take_messages",
        "wait_until_idle",
    ],
}

VALUES = {
    "QueueState": (
        *("waiting", "consuming", "reconsumed", "offset", "committed", "uncommitted"),
        *("is_scheduled", "is_called", "is_leaving", "is_dropped"),
        *("succeeded", "failed", "last_taken", "counts"),
    ),
    "Record": (
        *("topic", "partition", "offset", "key", "value", "headers", "properties"),
        *("timestamp", "queue"),
    ),
    "RecordMetadata": ("topic", "partition", "offset", "timestamp", "duplicate", "queue"),
    "BatchMetadata": ("topic", "rows", "offsets"),
    "TopicInfo": (
        "name",
        "topic_id",
        "partitions",
        "settings",
        "schema",
        "offsets",
        "rows",
        "bytes",
    ),
    "GroupInfo": (
        *("name", "generation", "members", "committed", "end", "lag", "lag_bytes"),
        "lag_seconds",
    ),
    "MemberInfo": ("name", "client", "assignment", "joined", "epoch"),
    "TraceStep": ("lsn", "time", "event", "facts"),
    "QueueInfo": ("name", "topics", "settings", "stats"),
    "QueueStats": (
        *("ready", "locked", "delayed"),
        *("delivered", "acked", "dead", "expired"),
    ),
    "Commit": ("lsn", "time", "entries", "place"),
    "Damage": ("file", "topic", "partition", "start", "end", "reason"),
    "Report": ("ok", "damage", "unreferenced", "notes"),
    "SealReport": ("segments", "rows", "bytes", "conflicts"),
    "CheckpointReport": ("lsn", "pages"),
    "TrimReport": ("starts", "rows", "bytes"),
    "CompactReport": ("before", "after", "dropped", "conflicts"),
    "CloneReport": ("lsn", "files", "rows", "bytes"),
    "CollectReport": ("files", "bytes"),
    "MaintainReport": ("trimmed", "sealed", "compacted", "checkpoint", "collected"),
    "StoreStats": (
        *("bytes", "files", "shared_files", "shared_bytes", "rows", "payload"),
        *("small_segments", "garbage_files"),
        *("garbage_bytes", "write_amplification", "damage"),
    ),
}


def test_names_of_kmq_spark():
    assert sorted(kmq_spark.__all__) == sorted(
        [
            *ERRORS,
            *METHODS,
            *VALUES,
            "KmqDataSource",
            "KmqWarning",
            "QueueSettings",
            "OrderlyStatus",
            "TopicSettings",
            "clone",
            "open",
            "incremental",
            "lag",
            "register",
        ]
    )


def test_every_name_of_kmq_spark_is_there():
    pytest.importorskip("pyspark")
    assert [name for name in kmq_spark.__all__ if getattr(kmq_spark, name, None) is None] == []


def test_all_names_can_be_imported_or_looked_at_where_there_is_no_spark():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"  # as one that isn't installed
        "import inspect, kmq_spark\n"
        "assert 'Store' in dict(inspect.getmembers(kmq_spark))\n"
        "from kmq_spark import *\n"
        "print(open('memory://x').topics(), KmqError.kind, 'lag' in dir())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[] error False\n", "")


def test_names_of_the_asyncio_twins():
    public = {
        name
        for name, value in vars(aio).items()
        if isinstance(value, type | FunctionType) and value.__module__.startswith(aio.__name__)
        if not name.startswith("_")
    }
    assert public == {
        *("Consumer", "Delivery", "KeyedDelivery", "KeyedQueues", "Opening", "OrderlyConsumer"),
        *("Producer", "Queue", "Sent", "Store", "Transaction"),
        "open",
    }


V2_METHODS = {
    "Kmq": [
        "current_can_read_max_index",
        "current_write_index",
        "poll",
        "register_consumer",
    ],
    "KmqBroker": ["create_consumer", "create_producer", "create_topic", "find_kmq"],
    "KmqConsumer": ["close", "poll", "subscribe"],
    "KmqMessage": ["body", "headers"],
    "KmqProducer": [
        "abort_transaction",
        "auto_commit",
        "begin_transaction",
        "close",
        "commit_transaction",
        "send",
        "send_without_lock",
    ],
}


def test_names_of_version_2():
    assert sorted(v2.__all__) == sorted(V2_METHODS)


@pytest.mark.parametrize("name", V2_METHODS)
def test_methods_of_version_2(name: str):
    public = [item for item in dir(getattr(v2, name)) if not item.startswith("_")]
    assert public == V2_METHODS[name]


def test_kmq_storage_offers_modules_only():
    assert {name for name, value in vars(kmq_storage).items() if callable(value)} == set()


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_handles(name: str):
    public = [item for item in dir(getattr(kmq_spark, name)) if not item.startswith("_")]
    assert public == METHODS[name]


@pytest.mark.parametrize("name", VALUES)
def test_fields_of_the_values(name: str):
    public = [item for item in vars(getattr(kmq_spark, name)) if not item.startswith("_")]
    assert sorted(public) == sorted(VALUES[name])


@pytest.mark.parametrize("name", ERRORS)
def test_errors_keep_their_place_their_kind_and_survive_pickling(name: str):
    cls: Any = getattr(kmq_spark, name)
    parent, kind, retryable = ERRORS[name]
    assert issubclass(cls, parent)
    assert issubclass(cls, kmq_spark.KmqError)
    assert getattr(kmq_spark.errors, name) is cls
    error = pickle.loads(pickle.dumps(cls("a message", topic="orders", offset=3)))
    assert type(error) is cls
    assert (str(error), error.kind, error.retryable) == ("a message", kind, retryable)
    assert dict(error.context) == {"topic": "orders", "offset": 3}


def test_words_of_the_command_line():
    assert [command.name for command in COMMANDS] == [
        "demo",
        "doctor",
        "bench",
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "group list",
        "group describe",
        "group set",
        "group copy",
        "group delete",
        "queue create",
        "queue list",
        "queue describe",
        "queue bind",
        "queue unbind",
        "queue redrive",
        "queue delete",
        "log",
        "log find",
        "log replay",
        "log trace",
        "copy",
        "clone",
        "archive",
        "maintain",
        "stats",
        "verify",
        "repair",
        "serve",
    ]
