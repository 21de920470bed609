"""The store: topics, reads, producers and consumers over one commit log.

Its other calls are in `store_groups`, `store_queues`, `finding`, `upkeep` and `orderly.opening`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.consuming.reading import topic_reader
from kmq_spark.client.consuming.settings import ConsumerSettings
from kmq_spark.client.consuming.subscription import checked_topics, subscription_of
from kmq_spark.client.encoding.routing import Partitioner
from kmq_spark.client.finding import Finding
from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import (
    DURABILITIES,
    check_choice,
    checked_count,
    checked_flag,
    checked_seconds,
)
from kmq_spark.client.handles.living import Living
from kmq_spark.client.handles.resource import Resource
from kmq_spark.client.orderly.opening import OpensOrderly
from kmq_spark.client.records.values import to_timestamp
from kmq_spark.client.sending.producer import Producer, ProducerSettings, identity
from kmq_spark.client.store_groups import StoreGroups
from kmq_spark.client.store_queues import StoreQueues
from kmq_spark.client.upkeep import Upkeep
from kmq_storage import topics
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.background import CONSUMER_INTERVALS, BackgroundMaintenance
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.model import Commit, TopicInfo
from kmq_storage.names import check_name
from kmq_storage.queues.slips import take_over_all

if TYPE_CHECKING:
    from kmq_spark.client.keyed.queues import KeyedQueues
    from kmq_spark.client.keyed.shared import SharedQueues

_ASSIGNORS = ("range", "roundrobin", "sticky")


class Store(Resource, StoreGroups, OpensOrderly, StoreQueues, Finding, Upkeep):
    """An open store: its topics, queues and groups, which share one commit log.

    Every method may be called from any thread. A store is a context manager: leaving the block
    closes it.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        maintenance: bool = True,
        again: Callable[[], CommitLog] | None = None,
    ) -> None:
        """`again` reopens the log read-only: keyed queues ask it once the store was closed."""
        #: The commit log beneath, for code that plans its own reads (the Spark source).
        self.log = log
        kept_up = maintenance and not log.files.read_only
        self._maintenance = BackgroundMaintenance(log) if kept_up else None
        self._last_look = LastLook()
        self._handles: Living[AbstractContextManager[Any]] = Living()
        self._keyed_queues: dict[str, SharedQueues] = {}
        self._again = again

    @property
    def url(self) -> str:
        """The URL of the store."""
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
        """Create a topic; a topic that exists is kept as it is, with its data.

        Args:
            name: 1 to 249 characters of `A-Z a-z 0-9 . _ % -`.
            partitions: The number of partitions; it can only grow later (`add_partitions`).
            schema: A `pyarrow.Schema` makes a typed topic, which stores its values as these
                columns. Their names don't begin with `_`.
            retention: Records are kept at least this long (seconds or timedelta), counted from
                their commit. None: for ever.
            retention_bytes: Each partition keeps at least this many bytes. None: all. With both,
                records go as soon as one of the two lets them, as in Kafka.
            cleanup: "delete", or "compact": keep the newest record of each key for ever. As in
                Kafka, both retention settings have no effect while it is "compact".
            capacity: The most records that the topic holds, over all partitions. What doesn't fit
                is refused with QueueFullError. None: no limit.
            max_record_bytes: The most bytes of key, value, headers and properties of one record.
            uniq_window: Seconds in which a second record with the same `uniq` is not stored.
            compression: Compression of sealed segments: "lz4", "zstd" or None. Only uncompressed
                segments can be memory-mapped.
            exist_ok: With False, a topic that exists is AlreadyExistsError.

        A topic that exists with other settings gives a KmqWarning that names them.
        InvalidRequestError names a bad name or setting.
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
        """Enlarge a topic to `total` partitions; fewer than it has is InvalidRequestError."""
        return topics.add_partitions(self.log, name, total)

    def alter_topic(self, name: str, **settings: Any) -> TopicInfo:
        """Change settings of a topic, by the names of `create_topic`; settings not named stay.

        A new `schema` may add nullable columns, and widen integers and floats. Any other change of
        it, and an unknown setting, is InvalidRequestError.
        """
        return topics.alter_topic(self.log, name, settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records; a later topic of the same name is a new one."""
        deleted = topics.delete_topic(self.log, name)
        self.log.refresh()  # so that this handle sees it at once
        take_over_all(self.log, self.log.state.queues, {deleted})

    def topics(self) -> list[TopicInfo]:
        """Describe every topic, sorted by name.

        KmqWarning when damage to the log may hide topics, or the newest records of some.
        """
        state = self.log.refresh()
        found = state.user_topics()
        warn_of_doubtful_ends(state, found)
        return [topic.info() for topic in found]

    def describe_topic(self, name: str) -> TopicInfo:
        """Describe one topic; NotFoundError when there is none of this name."""
        return self._topic(name).info()

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return start and end of each partition: `{partition: (start, end)}`.

        The end is the next offset. KmqWarning when the true end may lie beyond damage to the log.
        """
        return self._topic(topic).offsets()

    def _topic(self, name: str) -> Topic:
        state = self.log.refresh()
        topic = state.topic(name)
        warn_of_doubtful_ends(state, [topic], depth=2)
        return topic

    def offsets_for_time(self, topic: str, when: datetime) -> dict[int, int | None]:
        """Return per partition the first offset whose timestamp is at or after `when`.

        `{partition: offset}`, with None for a partition that has no such record. `when` is a
        datetime with a time zone.
        """
        instant = to_timestamp(when, "when")
        self._topic(topic)
        return topics.offsets_for_time(self.log, topic, instant)

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
        """Read a topic as Arrow record batches, lazily.

        Partitions come in ascending order, and each batch has records of one partition only.

        Args:
            topic: The topic.
            partitions: The partitions to read; None reads all.
            start: The first record: `{partition: offset}`, or a datetime with a time zone, which
                stands for the first record at or after it. None: the start of the log.
            end: The end, exclusive, in the same forms. None: the present end. An end beyond it is
                cut.
            columns: The columns to read; None reads all.
            batch_rows: The most rows of a batch.

        Columns of an untyped topic: `key` and `value` (binary), `topic` (string), `partition`
        (int32), `offset` (int64), `timestamp` (timestamp[us, UTC]), `headers` (list<struct<key:
        string, value: binary>>), `properties` (map<string, struct<int: int64, float: double, text:
        string, bytes: binary, bool: bool>>, one member not null). A typed topic has its own
        columns, then `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, `_headers`,
        `_properties`.

        OffsetOutOfRangeError for a start outside the log.
        """
        return topic_reader(
            self.log, topic, partitions, (start, end), columns, batch_rows=batch_rows
        )

    def commits(self, start: int | None = None) -> Iterator[Commit]:
        """Iterate over the commit log: commits with `lsn`, `time` and `entries`.

        From the LSN `start`, or from the oldest commit that is still in the log.
        OffsetOutOfRangeError when the commit `start` was collected.
        """
        self._check_open()  # now, not at the first step
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
        """Open a producer.

        Args:
            name: An identity that lasts over restarts: a newer producer of the same name fences
                this one (FencedError).
            transactional_id: The same identity under Kafka's name. Transactions need neither.
            linger: Seconds that a record waits for others to share its commit.
            batch_bytes: Commit without lingering once this many bytes wait.
            max_pending_bytes: `send` waits while this many bytes are not yet durable.
            partitioner: "murmur2", as in Kafka: by the key, and records without key a batch at a
                time to each partition in turn. Or a function `(topic, key, partitions) -> int`.
            durability: As in `open`, for this producer only.
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
        self.log.refresh()  # ClosedError for a closed store
        producer = Producer(self.log, settings)
        self._handles.add(producer)
        producer._start()
        self._keep_up(every=1)
        return producer

    def keyed_queues(
        self,
        name: str,
        *,
        retention: float | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> KeyedQueues:
        """Open the light queues that are the keys of one topic, which is made when missing.

        Args:
            name: The topic.
            retention: Messages are kept at least this long (seconds or timedelta).
            retention_bytes: At least this many bytes are kept, of all queues together. With both,
                messages go as soon as one of the two lets them.

        KmqWarning when the topic exists and keeps its messages otherwise (`alter_topic` changes
        that). InvalidRequestError when the topic was made without keyed queues.
        """
        from kmq_spark.client.keyed.queues import KeyedQueues
        from kmq_spark.client.keyed.shared import SharedQueues
        from kmq_storage.keyed.topic import ensure_keyed_topic

        wanted = {"retention": retention, "retention_bytes": retention_bytes}
        settings = {setting: value for setting, value in wanted.items() if value is not None}
        ensure_keyed_topic(self.log, check_name("topic", name), settings)
        made = SharedQueues(self.log, name, self.producer, self._again)
        self._keep_up()
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
        """Open a consumer: alone, or as a member of a group, whose members share the partitions.

        Args:
            group: The group. Without one, the consumer reads all partitions and can't commit.
            topics: Topics to subscribe to; else call `subscribe` or `assign`.
            pattern: A regular expression instead: every topic in whose name it is found.
            name: Static membership. Over a restart, the partitions of this member wait up to
                `session_timeout` for the next one of its name. A newer member fences the older one.
            auto_offset_reset: Where to begin without a committed offset, or when records were
                trimmed before they were read: "earliest", "latest" or "none" (raise).
            auto_commit: Commit what was handed out at the next call, and at a clean close.
            max_poll_interval: A member that makes no call for this many seconds loses its
                partitions to the others.
            session_timeout: A member whose process shows no sign of life for this many seconds
                loses them, too.
            assignor: "range", "roundrobin" or "sticky", the same for all members.
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
            subscription_of(state, topics, pattern)  # refuse a bad one before joining a group
        consumer = Consumer(self.log, settings)
        try:
            if topics is not None or pattern is not None:
                consumer.subscribe(topics, pattern=pattern)
        except BaseException:
            consumer.close()
            raise
        self._handles.add(consumer)
        if group is not None:
            self._keep_up()
        return consumer

    def _keep_up(self, *, every: int = CONSUMER_INTERVALS) -> None:
        """Maintain the store in the background, since something commits to it from now on."""
        if self._maintenance is not None:
            self._maintenance.start(every=every)

    # --- lifetime -----------------------------------------------------------------------

    @closes_apart
    def close(self) -> None:
        """Close the store with its producers, which commit what they hold, and its consumers."""
        self.__exit__(None, sys.exception(), None)

    def _check_open(self) -> None:
        self.log.check_open()

    def __exit__(self, *raised: object) -> None:
        with ExitStack() as closing:  # a handle that fails to close leaves no other open
            if self._maintenance is not None:  # closed last: the closed log ends its step
                closing.callback(self._maintenance.close)
            closing.callback(self.log.close)
            for handle in self._handles.all():
                # With the exception: a consumer commits only when there is none.
                closing.callback(handle.__exit__, *raised)  # type: ignore[arg-type]
