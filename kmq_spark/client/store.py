"""The store: topics, groups, producers, consumers and reads over one commit log."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kmq_spark.client.arguments import (
    DURABILITIES,
    check_choice,
    checked_count,
    checked_flag,
    checked_seconds,
)
from kmq_spark.client.consumer import Consumer, ConsumerSettings
from kmq_spark.client.finding import Finding
from kmq_spark.client.orderly.opening import OpensOrderly
from kmq_spark.client.producer import Producer, ProducerSettings, identity
from kmq_spark.client.reading import resolve_group_offsets, topic_reader
from kmq_spark.client.resource import Resource
from kmq_spark.client.routing import Partitioner
from kmq_spark.client.store_queues import StoreQueues
from kmq_spark.client.subscription import checked_topics, subscription_of
from kmq_spark.client.upkeep import Upkeep
from kmq_spark.client.values import to_timestamp
from kmq_storage import groups, topics
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.log.topic_state import Topic
from kmq_storage.maintenance.background import BackgroundMaintenance
from kmq_storage.model import Commit, GroupInfo, TopicInfo
from kmq_storage.names import check_name

if TYPE_CHECKING:
    from kmq_spark.client.keyed_queues import KeyedQueues, SharedQueues

_ASSIGNORS = ("range", "roundrobin", "sticky")


class Store(Resource, OpensOrderly, StoreQueues, Finding, Upkeep):
    """One store: everything in it shares one commit log. Safe for any number of threads."""

    def __init__(
        self,
        log: CommitLog,
        *,
        maintenance: bool = True,
        again: Callable[[], CommitLog] | None = None,
    ) -> None:
        """`again` opens the log once more, to read."""
        #: The commit log beneath, for code that plans its own reads (the Spark source).
        self.log = log
        self._maintenance = BackgroundMaintenance(log) if maintenance else None
        self._handles: weakref.WeakSet[AbstractContextManager[Any]] = weakref.WeakSet()
        self._keyed_queues: dict[str, SharedQueues] = {}
        self._again = again

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.log.files.url

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    # --- topics -------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        schema: pa.Schema | None = None,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
        cleanup: str = "delete",
        capacity: int | None = None,
        max_record_bytes: int = 1_048_576,
        uniq_window: float | timedelta = 120.0,
        compression: str | None = None,
        exist_ok: bool = True,
    ) -> TopicInfo:
        """Make a topic; one that exists is kept with its data (KmqWarning if settings differ).

        With `cleanup="compact"` the newest record of each key stays for ever: `retention` and
        `retention_bytes` wait, as in Kafka, until it is "delete" again.
        `compression` of sealed segments: "lz4", "zstd", or None, which readers map.
        A `schema` makes it typed: its columns are stored as columns, and don't begin with `_`.
        AlreadyExistsError with `exist_ok=False`, InvalidRequestError for bad names and settings.
        """
        settings: dict[str, Any] = {
            "retention": retention,
            "retention_bytes": retention_bytes,
            "cleanup": cleanup,
            "capacity": capacity,
            "max_record_bytes": max_record_bytes,
            "uniq_window": uniq_window,
            "compression": compression,
        }
        if schema is not None:
            settings["schema"] = schema
        keep = checked_flag("exist_ok", exist_ok)
        return topics.create_topic(self.log, name, partitions, settings, exist_ok=keep)

    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Enlarge a topic to this many partitions; fewer is InvalidRequestError."""
        return topics.add_partitions(self.log, name, total)

    def alter_topic(self, name: str, **settings: Any) -> TopicInfo:
        """Change some settings of a topic; unknown ones are InvalidRequestError.

        A `schema` may add nullable columns and widen integers and floats, nothing else.
        """
        return topics.alter_topic(self.log, name, settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; one made later under this name is another topic."""
        topics.delete_topic(self.log, name)
        self.log.refresh()  # who reads by this handle knows it, too

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name; KmqWarning when damage may hide some, or ends of them."""
        state = self.log.refresh()
        found = state.user_topics()
        warn_of_doubtful_ends(state, found)
        return [topic.info() for topic in found]

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic; NotFoundError when there is none of this name."""
        return self._topic(name).info()

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Start and end (next offset) of each partition; KmqWarning at a damaged end."""
        return self._topic(topic).offsets()

    def _topic(self, name: str) -> Topic:
        state = self.log.refresh()
        topic = state.topic(name)
        warn_of_doubtful_ends(state, [topic], depth=2)
        return topic

    def offsets_for_time(self, topic: str, when: datetime) -> dict[int, int | None]:
        """The first offset with a timestamp at or after an instant, per partition, or None."""
        instant = to_timestamp(when, "when")
        self._topic(topic)
        return topics.offsets_for_time(self.log, topic, instant)

    # --- groups -------------------------------------------------------------------------

    def groups(self) -> list[GroupInfo]:
        """Every consumer group, by name; KmqWarning when damage may hide some of what they did."""
        state = self.log.refresh()
        warn_of_doubtful_ends(state, state.topics.values())
        return [groups.describe_group(self.log, name) for name in sorted(state.groups)]

    def describe_group(self, name: str) -> GroupInfo:
        """One group; NotFoundError when nobody ever joined or committed."""
        found = groups.describe_group(self.log, check_name("group", name))
        warn_of_doubtful_ends(self.log.state, self.log.state.topics.values())
        return found

    def set_group_offsets(
        self,
        name: str,
        offsets: Mapping[str, Mapping[int, int]] | str | datetime,
        *,
        topics: Iterable[str] | None = None,
    ) -> None:
        """Set a group's offsets: `{topic: {partition: n}}`, "earliest", "latest" or an instant.

        Words and instants apply to `topics`, or to those that the group has. IllegalStateError
        with live members, OffsetOutOfRangeError outside the log.
        """
        groups.check_idle(self.log, check_name("group", name))
        resolved = resolve_group_offsets(self.log, name, offsets, topics)
        groups.set_group_offsets(self.log, name, resolved)

    def copy_group(self, source: str, target: str) -> None:
        """Give one group the offsets of another."""
        groups.copy_group(self.log, check_name("group", source), check_name("group", target))

    def delete_group(self, name: str) -> None:
        """Forget a group; IllegalStateError with live members."""
        groups.delete_group(self.log, check_name("group", name))

    # --- reading and writing ------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        start: Mapping[int, int] | datetime | None = None,
        end: Mapping[int, int] | datetime | None = None,
        columns: Iterable[str] | None = None,
        batch_rows: int = 65_536,
    ) -> pa.RecordBatchReader:
        """The records of a topic as Arrow, lazily: partitions ascending, no batch crosses two.

        Columns: `key, value` binary, `topic` string, `partition` int32, `offset` int64,
        `timestamp` timestamp[us, UTC], `headers` list of struct, `properties` map; of a typed topic
        its own, then `_topic, _partition, _offset` and so on. `start` and
        `end` are `{partition: offset}` or instants. OffsetOutOfRangeError for a start below the
        log's; an end beyond it and instants are clipped.
        """
        return topic_reader(
            self.log, topic, partitions, (start, end), columns, batch_rows=batch_rows
        )

    def commits(self, start: int | None = None) -> Iterator[Commit]:
        """The commit log itself, from an LSN on: `lsn, time, entries`."""
        return self.log.commits(None if start is None else checked_count("start", start, lowest=0))

    def producer(
        self,
        *,
        name: str | None = None,
        linger: float | timedelta = 0.005,
        batch_bytes: int = 1_048_576,
        max_pending_bytes: int = 67_108_864,
        partitioner: str | Partitioner = "murmur2",
        transactional_id: str | None = None,
        durability: str | None = None,
    ) -> Producer:
        """A producer; a `name` is its identity across restarts and fences the earlier holder.

        So is a `transactional_id`, another word for it.
        `linger` in seconds, sizes in bytes; `partitioner`: "murmur2" or `(topic, key,
        partitions) -> int`; `durability` as in `open`, for this producer only.
        """
        if durability is not None:
            check_choice("durability", durability, DURABILITIES)
        durable = self.log.durable if durability is None else durability == "fsync"
        settings = ProducerSettings(
            name=identity(name, transactional_id),
            transactional=transactional_id is not None,
            linger=checked_seconds("linger", linger),
            batch_bytes=checked_count("batch_bytes", batch_bytes),
            max_pending_bytes=checked_count("max_pending_bytes", max_pending_bytes),
            partitioner=partitioner,
            durable=durable,
        )
        self.log.refresh()  # a closed store has no producers
        producer = Producer(self.log, settings)
        self._handles.add(producer)
        if self._maintenance is not None:
            self._maintenance.start()
        return producer

    def keyed_queues(
        self,
        name: str,
        *,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> KeyedQueues:
        """The light queues that are the keys of a topic, which is made unless it is there.

        Their messages are kept for `retention` seconds, and `retention_bytes` of all queues, at
        least; KmqWarning when the topic is there and keeps them otherwise (`alter_topic` changes
        it). InvalidRequestError when it was made without queues.
        """
        from kmq_spark.client.keyed_queues import KeyedQueues, SharedQueues
        from kmq_storage.keyed.topic import ensure_keyed_topic

        wanted = {"retention": retention, "retention_bytes": retention_bytes}
        settings = {setting: value for setting, value in wanted.items() if value is not None}
        ensure_keyed_topic(self.log, check_name("topic", name), settings)
        made = SharedQueues(self.log, name, self.producer, self._again)
        return KeyedQueues(self._keyed_queues.setdefault(name, made))

    def consumer(
        self,
        group: str | None = None,
        *,
        topics: Iterable[str] | str | None = None,
        pattern: str | None = None,
        name: str | None = None,
        auto_offset_reset: str = "earliest",
        auto_commit: bool = False,
        max_poll_interval: float | timedelta = 300.0,
        session_timeout: float | timedelta = 45.0,
        assignor: str = "range",
    ) -> Consumer:
        """A consumer, alone or as a member of a group, whose members share the partitions.

        One that makes no call for `max_poll_interval` seconds, or whose process shows no life for
        `session_timeout`, loses its partitions to the others. The partitions of a member with a
        `name` wait for the next one of that name for `session_timeout`. `assignor`: `range`,
        `roundrobin` or `sticky`, the same for all members.
        """
        check_choice("assignor", assignor, _ASSIGNORS)
        settings = ConsumerSettings(
            group=group,
            name=name,
            auto_offset_reset=auto_offset_reset,
            auto_commit=checked_flag("auto_commit", auto_commit),
            max_poll_interval=checked_seconds("max_poll_interval", max_poll_interval, above=0),
            session_timeout=checked_seconds("session_timeout", session_timeout, above=0),
            assignor=assignor,
        )
        topics = checked_topics(topics)
        state = self.log.refresh()
        if topics is not None or pattern is not None:
            subscription_of(state, topics, pattern)  # refused before a group is joined
        consumer = Consumer(self.log, settings)
        try:
            if topics is not None or pattern is not None:
                consumer.subscribe(topics, pattern=pattern)
            elif group is not None:
                consumer.unsubscribe()  # a member that reads nothing yet
        except BaseException:
            consumer.close()
            raise
        self._handles.add(consumer)
        return consumer

    # --- lifetime -----------------------------------------------------------------------

    def close(self) -> None:
        """Close every producer (committing what it holds) and consumer, and the store."""
        self.__exit__(None, None, None)

    def _check_open(self) -> None:
        self.log.check_open()

    def __exit__(self, *raised: object) -> None:
        with ExitStack() as closing:  # one that fails leaves none open
            if self._maintenance is not None:  # the last: a closed log ends what it is at
                closing.callback(self._maintenance.close)
            closing.callback(self.log.close)
            for handle in list(self._handles):
                # Told of the exception: a consumer commits only after none.
                closing.callback(handle.__exit__, *raised)  # type: ignore[arg-type]
