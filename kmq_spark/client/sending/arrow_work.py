"""Arrow data of one send on its way into a commit: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kmq_spark.client.encoding.routing import split
from kmq_spark.client.encoding.storable import check_storable
from kmq_spark.client.sending.sends import ArrowSend
from kmq_spark.client.sending.topic_arrow import rows_of_topic_arrow
from kmq_spark.client.sending.work import TRY_AGAIN, Means
from kmq_spark.errors import KmqError
from kmq_storage.format.entries import Entry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic


class ArrowWork:
    """Arrow data of one send."""

    def __init__(self, send: ArrowSend) -> None:
        self.topic = send.topic
        self._send = send
        self._counts: dict[int, int] = {}
        #: The definition of the topic when it was encoded, and the unit, or its parts.
        self._prepared: tuple[object, Unit | list[PartitionRecords]] | None = None

    def prepare(
        self,
        topic: Topic,
        means: Means,
        try_place: Callable[[Sequence[PartitionRecords]], Unit | None],
    ) -> None:
        """Encode ahead of time in the caller's thread, so that the worker only commits.

        `try_place` makes a unit of it, or returns None when it is too large for that.
        """
        records = self._encode(topic, means)
        self._prepared = _definition(topic), try_place(records) or records

    def unit(self, state: StoreState, means: Means, room: int) -> Unit:
        """Return what was prepared if the topic has not changed since; else encode it now.

        The first row that can't be stored refuses all rows.
        """
        topic = state.topic(self.topic)
        self._send.topic_id = topic.id
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == _definition(topic):
            found = prepared[1]
        else:
            found = self._encode(topic, means)
        return found if isinstance(found, Unit) else means.place(found, room)

    def _encode(self, topic: Topic, means: Means) -> list[PartitionRecords]:
        found: list[PartitionRecords] = []
        now = means.now_us()
        self._counts = {}
        for checked in self._send.batches:
            rows = rows_of_topic_arrow(checked, topic, now, self._send.partition)
            routes = means.router.routes(topic, rows)
            check_storable(topic, rows, routes)
            found += split(topic, rows, routes)
        for records in found:
            count = sum(sized.batch.num_rows for sized in records.batches)
            self._counts[records.partition] = self._counts.get(records.partition, 0) + count
        return found

    def refuse(self, error: KmqError) -> list[ArrowWork]:
        """What is left to try after a refusal: all of it, or nothing."""
        if isinstance(error, TRY_AGAIN):
            return [self]
        self.fail(error)
        return []

    def fail(self, error: KmqError) -> None:
        """Nothing of it can be stored."""
        self._send.failure = error

    def let_go(self) -> None:
        """Nothing is kept here."""

    def committed(
        self, first_offsets: dict[int, int], entries: Sequence[Entry] | None = None
    ) -> None:
        """Note the first offset that the rows got in each partition."""
        self._send.offsets = {
            partition: (first, first + self._counts[partition])
            for partition, first in sorted(first_offsets.items())
        }


def _definition(topic: Topic) -> object:
    """What an encoding depends on."""
    return topic.id, topic.partitions, topic.settings
