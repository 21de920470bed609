"""The calls of a store that look for records: find them, send them again, trace their path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kmq_spark.client.consuming.reading import Bound, plan_read
from kmq_spark.client.handles.arguments import checked_count, checked_offset, checked_partition
from kmq_spark.client.records.record_columns import public_batches, public_schema
from kmq_spark.client.records.values import (
    MEMBERS,
    Headers,
    Properties,
    checked_extras,
    to_bytes,
    to_timestamp,
)
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.matching import Pair, WantedRecords
from kmq_storage.groups.administration import check_idle, committed_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.reading.search import Searcher
from kmq_storage.names import check_name, queue_log

if TYPE_CHECKING:
    from kmq_spark.client.sending.producer import Producer
    from kmq_storage.tracing import TraceStep


class _Store(Protocol):
    log: CommitLog

    def producer(self, *, transactional_id: str | None = None) -> Producer: ...


class Finding:
    """The part of a store that finds records, sealed or not."""

    def find(
        self: _Store,
        topic: str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        properties: Properties | None = None,
        start: Bound = None,
        end: Bound = None,
        limit: int = 100,
    ) -> pa.Table:
        """Return the records of a topic with this key, these headers and these properties.

        A record is found when everything asked for holds for it. The table is sorted by partition
        and offset, and has the columns of `read`.

        Args:
            topic: The topic.
            key: The key of the records.
            headers: Headers that each has: name and value (bytes or text; None: without a value).
            properties: Properties that each has. A value is equal with its type: `1` is not `1.0`.
            start, end: Bounds as for `read`, with its errors. An instant bounds the timestamp of
                each record, also where timestamps of a partition don't ascend.
            limit: The most records to return. The search ends when it has them.

        There is no index. The search reads the columns that it compares, and all columns of those
        batches that have a hit.
        """
        limit = checked_count("limit", limit)
        wanted = wanted_of(key, headers, properties, start, end)
        schema, parts = found(self.log, topic, wanted, (start, end), limit)
        batches = [batch for part in parts for batch in public_batches(part, schema)]
        return pa.Table.from_batches(batches, schema)

    def replay(
        self: _Store,
        topic: str,
        target: str | None = None,
        *,
        queue: str | None = None,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        properties: Properties | None = None,
        start: Bound = None,
        end: Bound = None,
        group: str | None = None,
    ) -> int:
        """Send all records that `find` would find to another topic, or to a queue; return how many.

        Records keep key, value, headers, properties and timestamp. Their partitions are chosen
        anew, so records of a key stay in order. Records that arrive meanwhile are not sent.

        Args:
            topic: Where the records are.
            target, queue: Where they go: either a topic or a queue. A queue takes no tombstones,
                and no records of a typed topic.
            key, headers, properties, start, end: As for `find`.
            group: Send each record exactly once, over several calls. Each batch is one commit with
                the group's offsets, and the next call goes on from there. Without a group, a call
                after an error sends all records again.

        Raises:
            IllegalStateError: The group has a live member.
            FencedError: Another call with this group has begun.
            KmqError: As raised by `read` and `Producer.send_arrow`.
        """
        from kmq_spark.client.replaying import send_again, send_once

        wanted, bounds = wanted_of(key, headers, properties, start, end), (start, end)
        name = _target(self.log, target, queue)
        if group is None:
            with self.producer() as producer:
                return send_again(producer, name, *found(self.log, topic, wanted, bounds))
        check_idle(self.log, check_name("group", group))
        # The producer comes first: it fences an earlier call, which then stores nothing more.
        with self.producer(transactional_id=f"redo.{group}") as producer:
            after = committed_offsets(self.log.refresh(), group).get(topic, {})
            schema, parts = found(self.log, topic, wanted, bounds, after=after)
            return send_once(producer, name, schema, parts, (group, topic))

    def trace(self: _Store, topic: str, partition: int, offset: int) -> list[TraceStep]:
        """Return the path of one record, step by step: sent, passed by groups, sealed, trimmed.

        The steps come from the commits that are still in the log. Older steps are told without LSN
        and time, as far as the state knows them. OffsetOutOfRangeError for an offset that no record
        has had yet.
        """
        from kmq_storage.tracing import trace

        place = checked_partition(partition), checked_offset(offset)
        return trace(self.log, topic, *place)


def _target(log: CommitLog, topic: str | None, queue: str | None) -> str:
    """The name of a topic, or of a queue's own log; NotFoundError when there is none."""
    if (topic is None) == (queue is None):
        raise InvalidRequestError("name what records are sent to: either a topic or a queue")
    state = log.refresh()
    if queue is not None:
        return queue_log(state.queue(check_name("queue", queue, is_new=False)).name)
    return state.topic(check_name("topic", topic)).name


def wanted_of(
    key: bytes | str | None,
    headers: Headers | None,
    properties: Properties | None,
    start: Bound = None,
    end: Bound = None,
) -> WantedRecords:
    """What to look for; InvalidRequestError names what no record can have."""
    checked = checked_extras(headers, properties, None, None)
    headers, facts = checked.headers or (), checked.properties or ()
    since, until = (
        to_timestamp(bound, what) if isinstance(bound, datetime) else None
        for what, bound in (("start", start), ("end", end))
    )
    return WantedRecords(
        None if key is None else to_bytes("key", key),
        tuple(map(Pair, headers[::2], headers[1::2])),
        tuple(
            Pair(name, value, MEMBERS[type(value)])
            for name, value in zip(facts[::2], facts[1::2], strict=True)
        ),
        since,
        until,
    )


def found(
    log: CommitLog,
    name: str,
    wanted: WantedRecords,
    bounds: tuple[Bound, Bound],
    limit: int | None = None,
    *,
    after: Mapping[int, int] = MappingProxyType({}),
    only: int | None = None,
) -> tuple[pa.Schema, Iterator[Slice]]:
    """The columns of a topic, and its wanted records by partition and offset, read when asked.

    Of partitions in `after` those from that offset on; of no other partition than `only`.
    """
    plan = plan_read(log, name, None, bounds)
    searcher = Searcher(log, plan.topic, wanted)

    def parts(left: int | None) -> Iterator[Slice]:
        for number, (start, end) in plan.spans.items():
            if left == 0:
                return
            if only not in (None, number):
                continue
            if wanted.until is not None:  # later ones may be of an earlier time
                end = plan.topic.partition(number).end
            first = min(max(start, after.get(number, start)), end)
            for part in searcher.search(number, (first, end), left):
                yield part
                left = None if left is None else left - part.rows
            if left != 0:
                plan.check_end(number)

    return public_schema(plan.topic.layout()), parts(limit)
