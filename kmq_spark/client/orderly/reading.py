"""The thread that reads for an orderly consumer: fills process queues, and commits offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby

from kmq_spark.client.consuming.settings import ConsumerSettings
from kmq_spark.client.consuming.subscription import Partitions, TopicPartition
from kmq_spark.client.orderly.listening import Listening, PartitionQueue
from kmq_spark.client.orderly.process_queue import drop, leave, note_committed
from kmq_spark.client.orderly.reader import Place, Reader
from kmq_spark.client.orderly.rules import Listener, OrderlySettings
from kmq_spark.errors import (
    ClosedError,
    DataLossError,
    FencedError,
    IllegalStateError,
    KmqError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)

#: Seconds between commits of offsets.
_COMMIT_SECONDS = 1.0
#: Seconds until an error is followed by another attempt.
_ERROR_SECONDS = 1.0
_READ_AT_ONCE = 500
#: About the most bytes that wait, shared by the partitions (RocketMQ: 100 MB of each), and the
#: least share: with hundreds of partitions there is still room for a large record of each.
_WAITING_BYTES, _SHARE_MIN = 64 << 20, 1 << 20
#: The most bytes of a read.
_READ_BYTES = 8 << 20
_REFUSED = (FencedError, NotFoundError, OffsetOutOfRangeError)


class Reading:
    """A group member that reads what its listener is to get."""

    def __init__(
        self,
        log: CommitLog,
        group: str,
        listener: Listener,
        settings: OrderlySettings,
        closing: Flag,
    ) -> None:
        self._log = log
        self._closing = closing
        self._reader = Reader(log, ConsumerSettings(group=group))
        self._listening = Listening(log, self._reader, listener, settings, closing)
        self.is_listener = self._listening.is_inside
        self.wake = self._reader.call
        self.queues: dict[Place, PartitionQueue] = {}
        #: Partitions of which nothing was read yet, and where they begin.
        self._gained: dict[Place, int] = {}
        #: Queues that were dropped while the listener had records of them.
        self._dropped: dict[Place, PartitionQueue] = {}
        self._committed_at = -_COMMIT_SECONDS

    def begin(self, topics: Iterable[str]) -> None:
        """Join the group."""
        self._reader.give_away_by(self._ready)
        try:
            self._reader.subscribe(
                topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
        except BaseException:
            self._reader.close()
            raise

    def run(self) -> None:
        """Read until it is closed, then leave the group."""
        try:
            while not self._closing.is_set():
                self._try_to_read()
        except ClosedError:
            pass  # the store was closed
        finally:
            self._closing.set()
            self._leave()

    def _leave(self) -> None:
        try:
            self._reader.close()
        except KmqError as error:
            _LOGGER.warning("records that were consumed may come again: %s", error)
        finally:
            self._listening.close()

    def _try_to_read(self) -> None:
        try:
            self._read()
        except ClosedError:
            raise
        except KmqError as error:  # it may pass, and other partitions go on
            _LOGGER.warning(
                "group %s: %s", self._reader.group, _with_way_out(error, self._reader.group)
            )
            self._closing.wait(_ERROR_SECONDS)

    def _read(self) -> None:
        self._reader.heed()
        self._commit_if_due()
        self._begin_with_gained()
        share = max(_WAITING_BYTES // max(len(self.queues), 1), _SHARE_MIN)
        at_once = min(share // 2, _READ_BYTES)
        self._pause_full_ones(share - at_once)
        # Records of a partition that is gained meanwhile may be older than that: drop them.
        found = self._reader.read(_READ_AT_ONCE, at_once, timeout=_COMMIT_SECONDS)
        for place, records in groupby(found, lambda each: Place(str(each.topic), each.partition)):
            if place in self.queues and place not in self._gained:
                self._listening.put(self.queues[place], tuple(records))

    def _begin_with_gained(self) -> None:
        self._dropped = {p: queue for p, queue in self._dropped.items() if queue.state.is_called}
        for place, offset in self._gained.copy().items():
            if place in self._dropped:
                continue
            try:
                self._reader.seek(*place, offset)
                self._reader.resume({place.topic: [place.partition]})
            except IllegalStateError:
                if self._gained.get(place) == offset:
                    raise
            if self._gained.get(place) == offset:  # else it was lost in these calls, or came again
                del self._gained[place]

    def _pause_full_ones(self, room: int) -> None:
        """Pause partitions of which enough waits; the listening threads tell when it is little."""
        for place, queue in self.queues.copy().items():
            if queue.look(room):
                change = self._reader.pause if queue.is_full else self._reader.resume
                change({place.topic: [place.partition]})

    # --- partitions come and go ---------------------------------------------------------

    def _assigned(self, partitions: Partitions) -> None:
        beginnings = self._reader.beginnings()
        for place in _places(partitions):
            key, begun = beginnings[place]
            self._gained[place] = begun
            self.queues[place] = PartitionQueue(self._log, place, key, begun)
        for place in _places(partitions):
            if place in self._dropped:  # it must not get one partition twice at once
                self._reader.pause({place.topic: [place.partition]})

    def _ready(self, moving: list[TopicPartition]) -> list[TopicPartition]:
        """Return those of which the listener has no records; it gets no new ones of any."""
        places = {_place(each): each for each in moving}
        for place, queue in self.queues.items():
            if queue.state.is_leaving != (place in places):
                queue.change(partial(leave, is_leaving=place in places))
                self._listening.put(queue, ())  # a partition that stays after all goes on
        return [each for place, each in places.items() if not self.queues[place].state.is_called]

    def _revoked(self, partitions: Partitions) -> None:
        """Let the listener finish, and commit that, before these partitions are given away."""
        leaving = [self.queues[place] for place in _places(partitions)]
        for queue in leaving:
            queue.change(partial(leave, is_leaving=True))
        for queue in leaving:
            queue.wait_until_idle()
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: Partitions) -> None:
        """Commit nothing more of these; what the listener has of them no longer counts."""
        lost = {place: self.queues.pop(place) for place in _places(partitions)}
        for place in lost:
            self._gained.pop(place, None)
        with self._listening.committing:
            for queue in lost.values():
                queue.change(drop)
        self._dropped |= {each: queue for each, queue in lost.items() if queue.state.is_called}

    # --- commits ------------------------------------------------------------------------

    def _commit_if_due(self) -> None:
        now = self._log.environment.monotonic()
        if now - self._committed_at >= _COMMIT_SECONDS:
            self._commit()
            self._committed_at = now

    def _commit(self) -> None:
        with self._listening.committing:
            offsets = {
                place: offset
                for place, queue in self.queues.items()
                if (offset := queue.state.uncommitted) is not None
                and offset >= queue.burials.unsure_below
            }
            if not offsets:
                return
            try:
                self._reader.commit_with({self.queues[p].key: n for p, n in offsets.items()})
            except _REFUSED:
                self._commit_each(offsets)
            for place, offset in offsets.items():
                self.queues[place].change(partial(note_committed, offset=offset))

    def _commit_each(self, offsets: Mapping[Place, int]) -> None:
        """Commit those offsets that can be; a partition may be lost, trimmed or deleted by now."""
        for place, offset in offsets.items():
            try:
                self._reader.commit_with({self.queues[place].key: offset})
            except _REFUSED as error:
                _LOGGER.warning("records that were consumed may come again: %s", error)


def _with_way_out(error: KmqError, group: str) -> str:
    """Return an error with the way out: a lost record is not skipped silently."""
    if not isinstance(error, DataLossError):
        return str(error)
    behind = {error.context["topic"]: {error.context["partition"]: error.context["end"]}}
    return (
        f"{error}. This partition waits until the lost records are given up: close all "
        f"consumers of the group, then store.set_group_offsets({group!r}, {behind!r})"
    )


def _place(each: TopicPartition) -> Place:
    return Place(each.topic, each.partition)


def _places(partitions: Partitions) -> list[Place]:
    return [Place(topic, number) for topic, numbers in partitions.items() for number in numbers]
