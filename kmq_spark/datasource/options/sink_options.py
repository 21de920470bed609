"""The options of a write: parsed once, on the driver, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kmq_spark.datasource.groups.move import parse_move
from kmq_spark.datasource.options import values
from kmq_spark.datasource.options.known_options import SINK_OPTIONS, SOURCE_OPTIONS, refuse_unknown
from kmq_spark.datasource.refusal import refuse
from kmq_storage import limits
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry
from kmq_storage.names import queue_log

#: Options that Spark itself adds for a streaming sink.
_CHECKPOINT, _QUERY = "checkpointlocation", "queryname"


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The options of a write."""

    url: str
    #: The target; for a queue, the name of its own log. None when rows name their topics.
    topic: str | None
    #: The identity of a batch write (`txnAppId`, `txnVersion`): each target stores it once.
    batch: BatchIdEntry | None = None
    #: Entries that move a group in the commit of a batch write.
    move: tuple[GroupOffsetsEntry, ...] = ()
    #: The location of a stream's checkpoint; None when the session's settings give it.
    checkpoint: str | None = None


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write; InvalidRequestError names option, value and expectation."""
    given = {name.lower(): value for name, value in options.items()}
    given.pop(_QUERY, None)
    checkpoint = given.pop(_CHECKPOINT, None)
    refuse_unknown(given, SINK_OPTIONS, SOURCE_OPTIONS, "write")
    values.boolean(given, "includeHeaders", default=False)
    return SinkOptions(
        url=values.store_url(given),
        topic=_target(given),
        batch=_batch(given),
        move=parse_move(given),
        checkpoint=checkpoint,
    )


def _target(given: Mapping[str, str]) -> str | None:
    """Return the topic to write to, or a queue's own log; None when rows name their topics."""
    topic, queue = values.name(given, "topic", "topic"), values.name(given, "queue", "queue")
    if topic is not None and queue is not None:
        raise InvalidRequestError(
            f"options 'topic' ({topic!r}) and 'queue' ({queue!r}): a write goes to one of the two; "
            "bind the queue to the topic, or write twice",
            option="queue",
        )
    return topic if queue is None else queue_log(queue)


def _batch(given: Mapping[str, str]) -> BatchIdEntry | None:
    application, version = given.get("txnappid"), given.get("txnversion")
    if application is None and version is None:
        return None
    if application is None or version is None:
        there, missing = ("txnVersion", "txnAppId")[:: 1 if application is None else -1]
        raise InvalidRequestError(
            f"option {there!r} needs option {missing!r} beside it: an application's name, and a "
            "number that grows with each of its writes",
            option=there,
        )
    if not 1 <= len(values.utf8(application)) <= limits.APPLICATION_BYTES_MAX:
        refuse("txnAppId", application[:99], f"1 to {limits.APPLICATION_BYTES_MAX} bytes of text")
    return BatchIdEntry(application, values.count(version, "txnVersion"))
