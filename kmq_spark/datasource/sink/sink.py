"""The values of a write that travel to its tasks, and from the tasks back to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from kmq_spark.client.typed.topics import typed_columns
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.sink_options import SinkOptions
from kmq_spark.datasource.sink.columns import (
    check_routed_columns,
    check_sink_columns,
    check_transport,
    unused_columns,
)
from kmq_spark.datasource.sink.packing import Packed, packed, unpacked
from kmq_storage.errors import NotFoundError
from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, RecordsEntry
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import TopicSettings
from kmq_storage.names import nearest, queue_of_log

#: The target's id in the identity of a write whose rows name their topics.
_ROUTED = bytes(16)


class Definition(NamedTuple):
    """The facts on a topic that a task needs; few, since a task may unpickle thousands of these."""

    id: bytes
    partitions: int
    settings: TopicSettings


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A store to write to, as of some LSN; the chosen topic, or the topics that rows may name."""

    url: str
    lsn: int
    topic: str | None
    definitions: Mapping[str, Definition]
    #: The identity of a batch write. A stream's batch gets its own when it is committed.
    batch: BatchIdEntry | None = None
    #: Whether that write is stored already, so that tasks skip its rows.
    stored: bool = False
    #: Entries that move a group in the same commit.
    move: tuple[GroupOffsetsEntry, ...] = ()
    #: Where the checkpoint of a stream is, if its own options say so.
    checkpoint: str | None = None

    def counted(self, query: str, number: int) -> BatchIdEntry:
        """Return the identity of a stream's batch, in the form of a batch write's."""
        target = None if self.topic is None else self.find(self.topic)
        return _counted(BatchIdEntry(query, number), target)

    def find(self, name: str) -> Topic:
        """Return a topic made of its definition alone, since executors replay no log for it."""
        state = StoreState()
        if name in self.definitions:
            state.add_topic(_defined(name, self.definitions[name]))
        return state.topic(name)

    def check_columns(self, schema: StructType) -> None:
        """InvalidRequestError for a missing column or a wrong type; others are ignored."""
        check_transport(schema)
        if self.topic is None:
            check_routed_columns(schema)
            return
        columns = typed_columns(self.find(self.topic))
        if columns is None:
            check_sink_columns(schema, unused_columns(self.topic))
        else:
            from kmq_spark.datasource.sink.typed import check_typed_sink  # with all type checks

            check_typed_sink(schema, self.topic, columns)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The output of one task: references to staged batches, and batches small enough to send."""

    staged: tuple[RecordsEntry, ...]
    small: tuple[PartitionRecords, ...]
    #: The streaming query; None for a batch write.
    query: str | None = None
    #: The session's folder for checkpoints; None if the stream names its own, or there is none.
    checkpoint: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        rest = self.query, self.checkpoint
        return _unpickled, (self.staged, packed(self.small), *rest)


def _unpickled(staged: tuple[RecordsEntry, ...], small: list[Packed], *rest: str | None) -> Written:
    return Written(staged, unpacked(small), *rest)


def open_sink(options: SinkOptions) -> Sink:
    """The sink for these options; NotFoundError when store, topic or queue is not there."""
    state = open_log(options.url, read_only=False).refresh()
    named = [topic.name for topic in state.user_topics()]
    names = named if options.topic is None else [options.topic]
    target = None if options.topic is None else _target(state, options.topic)
    batch = None if options.batch is None else _counted(options.batch, target)
    stored = batch is not None and _is_stored(state, batch)
    return Sink(
        url=options.url,
        lsn=state.lsn,
        topic=options.topic,
        definitions=_definitions([state.topic(name) for name in names]),
        batch=batch,
        stored=stored,
        move=options.move,
        checkpoint=options.checkpoint,
    )


def _definitions(topics: Iterable[Topic]) -> dict[str, Definition]:
    """Return definitions by name; equal settings are one object, which is pickled once."""
    known: dict[TopicSettings, TopicSettings] = {}
    return {
        each.name: Definition(
            each.id, each.partitions, known.setdefault(each.settings, each.settings)
        )
        for each in topics
    }


def _defined(name: str, definition: Definition) -> Topic:
    topic = Topic(definition.id, name, None)
    topic.settings = definition.settings
    topic.enlarge(definition.partitions)
    return topic


def _target(state: StoreState, name: str) -> Topic:
    queue = queue_of_log(name)
    if queue is None:
        return _topic(state, name)
    try:
        return state.topic(name)
    except NotFoundError:
        near = nearest(queue, [each.name for each in state.queues])
        topic = "; for the topic of that name use option 'topic'" if queue in state.topics else ""
        raise NotFoundError(
            f"Queue[{queue}] doesn't exist{near}: make it by store.create_queue({queue!r}) or "
            f"`kmq queue create {queue}`{topic}",
            queue=queue,
        ) from None


def _topic(state: StoreState, name: str) -> Topic:
    try:
        return state.topic(name)
    except NotFoundError as missing:
        near = nearest(name, [topic.name for topic in state.user_topics()])
        raise NotFoundError(
            f"{missing.message} Option 'topic' names it{near}; a write makes no topics: "
            f"store.create_topic({name!r}) or `kmq topic create {name}` does",
            **missing.context,
            option="topic",
        ) from None


def _counted(batch: BatchIdEntry, target: Topic | None) -> BatchIdEntry:
    """Return the identity under which the log remembers a batch.

    It contains the target: queries on copies of one checkpoint have the same id, and each has to
    store its batches in its own topic.
    """
    topic_id = _ROUTED if target is None else target.id
    return BatchIdEntry(f"{topic_id.hex()} {batch.application}", batch.version)


def _is_stored(state: StoreState, batch: BatchIdEntry) -> bool:
    last = state.batch_version(batch.application)
    return last is not None and batch.version <= last
