"""The calls of a store that look for records: find them, send them again, tell their path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kmq_spark.client.arguments import checked_count, checked_offset, checked_partition
from kmq_spark.client.reading import Bound, plan_read
from kmq_spark.client.record_columns import public_batches, public_schema
from kmq_spark.client.values import MEMBERS, Headers, Properties, checked_extras, to_bytes
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.matching import Pair, WantedRecords
from kmq_storage.groups import check_idle, committed_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.scan import Slice
from kmq_storage.log.search import Searcher
from kmq_storage.names import check_name, queue_log

if TYPE_CHECKING:
    from kmq_spark.client.producer import Producer
    from kmq_storage.tracing import TraceStep


class _Store(Protocol):
    log: CommitLog

    def producer(self, *, transactional_id: str | None = None) -> Producer: ...


class Finding:
    """What a store does to find records, whether they are sealed or not."""

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
        """The first `limit` records with this key and all these headers and properties.

        By partition and offset, with the columns and bounds of `read`, and its errors. Values are
        equal with their types: `1` is not `1.0`. A header's value is bytes or text; None is one
        without a value. Of sealed records only the columns that are asked for are read, and all
        of the batches with a hit; the search ends with the last that is wanted.
        """
        limit = checked_count("limit", limit)
        wanted = wanted_of(key, headers, properties)
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
        """Send the records that `find` finds, all of them, to another topic; how many they are.

        Or to a `queue`, which takes no tombstones and none of a typed topic. They keep key, value,
        headers, properties and timestamp, and get partitions as sent ones do: those of a key keep
        their order. What comes to the topic meanwhile is not among them.
        Batches are stored one after the other: after an error those before it are there, and
        another call sends all of them again. Not so with a `group`: each batch is one commit with
        the group's offsets, from which another call goes on; two at a time fence each other.
        Errors are those of `read` and `Producer.send_arrow`, IllegalStateError for a group with
        live members, FencedError when a later call has it.
        """
        from kmq_spark.client.replaying import send_again, send_once

        wanted, bounds = wanted_of(key, headers, properties), (start, end)
        name = _target(self.log, target, queue)
        if group is None:
            with self.producer() as producer:
                return send_again(producer, name, *found(self.log, topic, wanted, bounds))
        check_idle(self.log, check_name("group", group))
        # Its producer comes first: what an earlier call would still store is refused from then on.
        with self.producer(transactional_id=f"redo.{group}") as producer:
            after = committed_offsets(self.log.refresh(), group).get(topic, {})
            schema, parts = found(self.log, topic, wanted, bounds, after=after)
            return send_once(producer, name, schema, parts, (group, topic))

    def trace(self: _Store, topic: str, partition: int, offset: int) -> list[TraceStep]:
        """The path of a record as the commit log tells it: sent, passed by groups, sealed, trimmed.

        Reads the commits that are still in the log. What came before is told without LSN and time,
        as far as the state knows it. OffsetOutOfRangeError for an offset that nobody has had yet.
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
        return queue_log(state.queues.named(check_name("queue", queue, is_new=False)).name)
    return state.topic(check_name("topic", topic)).name


def wanted_of(
    key: bytes | str | None, headers: Headers | None, properties: Properties | None
) -> WantedRecords:
    """What to look for; InvalidRequestError names what no record can have."""
    checked = checked_extras(headers, properties, None, None)
    headers, facts = checked.headers or (), checked.properties or ()
    return WantedRecords(
        None if key is None else to_bytes("key", key),
        tuple(map(Pair, headers[::2], headers[1::2])),
        tuple(
            Pair(name, value, MEMBERS[type(value)])
            for name, value in zip(facts[::2], facts[1::2], strict=True)
        ),
    )


def found(
    log: CommitLog,
    name: str,
    wanted: WantedRecords,
    bounds: tuple[Bound, Bound],
    limit: int | None = None,
    *,
    after: Mapping[int, int] = MappingProxyType({}),
) -> tuple[pa.Schema, Iterator[Slice]]:
    """The columns of a topic, and its wanted records by partition and offset, read when asked.

    Of partitions in `after` those from that offset on.
    """
    plan = plan_read(log, name, None, bounds)
    searcher = Searcher(log, plan.topic, wanted)

    def parts(left: int | None) -> Iterator[Slice]:
        for number, (start, end) in plan.spans.items():
            if left == 0:
                return
            first = min(max(start, after.get(number, start)), end)
            for part in searcher.search(number, (first, end), left):
                yield part
                left = None if left is None else left - part.rows
            if left != 0:
                plan.check_end(number)

    return public_schema(plan.topic.layout()), parts(limit)
