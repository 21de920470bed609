"""The known options, and what to use in place of others: Kafka's, a catalog's, misspelt ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kmq_spark.datasource.options.kafka_options import INSTEAD_OF_KAFKAS
from kmq_spark.datasource.store_url import is_storage_option
from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import nearest

#: Where reads and writes find the store.
STORE_OPTIONS = ("path", "store")

SOURCE_OPTIONS = (
    *STORE_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "partitions",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "columns",
    "queues",
    "includeHeaders",
    "includeProperties",
    "includeMetadata",
    "failOnDataLoss",
    "group",
    "table",
    "archive",
)

#: Options of a read that only a stream uses.
STREAM_OPTIONS = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)

#: Kafka's sink documents includeHeaders; a headers column is written with and without it.
#: `groupOffsets` is what `kmq.incremental` adds to its write.
SINK_OPTIONS = (
    *STORE_OPTIONS,
    "topic",
    "queue",
    "txnAppId",
    "txnVersion",
    "includeHeaders",
    "groupOffsets",
)

#: The answer to options that CREATE TABLE adds. Such a table could never be read: Spark then passes
#: no options to a source in Python.
NO_TABLES = (
    "kmq makes no tables in a catalog: use CREATE TEMPORARY VIEW name USING kmq OPTIONS (...)"
)

#: What to do instead, by an option's name or its beginning; the longest that fits counts.
_INSTEAD = {
    "location": NO_TABLES,
    "provider": NO_TABLES,
    "owner": NO_TABLES,
    "external": NO_TABLES,
    "option.": NO_TABLES,
    **INSTEAD_OF_KAFKAS,
    "paths": "a read or write has one store: load(path) with its text, not a list",
    "storage_options": "give each of them as an option of its own, as 'storage.endpoint'",
    "checkpointlocation": "a stream's checkpoint is an option of its writeStream",
}


def refuse_unknown(
    given: Iterable[str], known: Iterable[str], other_side: Iterable[str], use: str
) -> None:
    """InvalidRequestError for an option that a read or a write (`use`) doesn't have."""
    known_names = {name.lower(): name for name in known}
    other_names = {name.lower(): name for name in other_side}
    for name in given:
        if name in known_names or is_storage_option(name):
            continue
        if name in other_names:
            other = "write" if use == "read" else "read"
            raise InvalidRequestError(
                f"option {other_names[name]!r} belongs to a {other}, not to a {use}", option=name
            )
        raise InvalidRequestError(
            f"option {name!r} is unknown{_hint(name, known_names)}", option=name
        )


def _hint(name: str, known_names: Mapping[str, str]) -> str:
    begins = [begin for begin in _INSTEAD if name.startswith(begin)]
    if begins:
        return f"; {_INSTEAD[max(begins, key=len)]}"
    near = nearest(name, known_names)
    for lower, proper in known_names.items():
        near = near.replace(repr(lower), repr(proper))
    return near or f"; known are {', '.join(known_names.values())}"
