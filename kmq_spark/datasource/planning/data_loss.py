"""Records that a read should have and that are gone: an error, or a warning on request."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kmq_spark.datasource.offsets import Lost
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.topic_ranges import TopicRange
from kmq_storage.errors import DataLossError
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic

if TYPE_CHECKING:
    from kmq_spark.datasource.planning.history import History

_log = logging.getLogger(__name__)

#: The most partitions that a message names.
_NAMED_MAX = 20

_SET_BACK = (
    "it was set back, as by a backup that was put in the store's place, and records that came "
    "since may go unread"
)


class Losses:
    """The losses that one read has found; each is reported, and its records count once."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        #: The lost ranges that the offset of no finished batch counts.
        self.untold: dict[tuple[uuid.UUID, int], tuple[tuple[int, int], ...]] = {}
        self._noted: set[str] = set()

    def report(
        self, message: str, topic_id: uuid.UUID, lost: Iterable[OffsetRange], **facts: object
    ) -> None:
        """Raise DataLossError; with failOnDataLoss=false count and log the loss instead."""
        if self._fail:
            raise DataLossError(
                f"{message}; set failOnDataLoss=false to go on with what is there", **facts
            )
        known = [each for each in lost if each.size]
        told = f"{message} (failOnDataLoss=false: reading goes on)"
        if not known:
            self._note(told)
        elif sum(self._count((topic_id, r.partition), (r.start, r.end)) for r in known):
            _log.warning("%s", told)

    def report_missing(self, names: Iterable[str]) -> None:
        """Report topics that the options name, and that a read without them may leave out."""
        for name in names:
            self._note(f"Topic[{name}] doesn't exist (failOnDataLoss=false: read without it)")

    def report_again(self, lost: Lost) -> None:
        """Report what an earlier run had found to be lost when it planned a batch."""
        if new := sum(self._count(key, each) for key, ranges in lost.items() for each in ranges):
            _log.warning(
                "this batch is that of an earlier run, which passed over %s lost records when it "
                "planned the batch",
                new,
            )

    def tell(self, lost: Lost) -> None:
        """Note that the offset of a finished batch counts these."""
        rest = {
            key: tuple(part for each in ranges for part in _outside(each, lost.get(key, ())))
            for key, ranges in self.untold.items()
        }
        self.untold = {key: ranges for key, ranges in rest.items() if ranges}

    def _note(self, message: str) -> None:
        """Log what has no number once: a stream would repeat it at each look."""
        if message not in self._noted:
            self._noted.add(message)
            _log.warning("%s", message)

    def _count(self, key: tuple[uuid.UUID, int], lost: tuple[int, int]) -> int:
        """Count a loss, and return how many records of it are new: a stream reports it often."""
        known = self.untold.get(key, ())
        is_behind = bool(known) and known[-1][1] <= lost[0]  # as mostly, of thousands
        new = (lost,) if is_behind else tuple(_outside(lost, known))
        if new:
            self.untold[key] = tuple(sorted(known + new))
        return sum(end - start for start, end in new)

    def report_deleted(
        self,
        state: StoreState,
        name: str,
        topic_id: uuid.UUID,
        begins: Mapping[int, int],
        ends: Mapping[int, int] | None,
    ) -> None:
        """Report a deleted topic that was to be read between these offsets; None: unknown ends."""
        lost = None if ends is None else unread(name, begins, ends)
        message = deletion(state, name, topic_id, lost)
        self.report(message, topic_id, lost or (), topic=name)

    def report_set_back(
        self, topic: Topic, offsets: Mapping[int, int], lost: Iterable[OffsetRange] = ()
    ) -> None:
        """Report partitions that a query was reading, and that the topic no longer has."""
        places = named([f"{topic.name}-{p} at {offset}" for p, offset in sorted(offsets.items())])
        self.report(
            f"{places}: this query was reading there, and the topic's last partition is "
            f"{topic.partitions - 1}: {_SET_BACK}",
            topic.topic_id,
            lost,
            topic=topic.name,
        )

    def report_left_out(self, name: str, topic_id: uuid.UUID, offsets: Mapping[int, int]) -> None:
        """Report partitions that a query was reading, and that its options leave out now."""
        places = named([f"{name}-{p} at {offset}" for p, offset in offsets.items()])
        self.report(
            f"{places}: this query was reading there, and its options leave these partitions out "
            "now; it goes on there when they cover them again",
            topic_id,
            (),
            topic=name,
        )


def _outside(of: tuple[int, int], others: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are in none of the others, which are sorted."""
    position, end = of
    for start, until in others:
        if position < min(start, end):
            yield position, min(start, end)
        position = max(position, until)
    if position < end:
        yield position, end


def named(places: Sequence[str]) -> str:
    """Join places for a message, not too many of them."""
    more = [f"{len(places) - _NAMED_MAX} more"] if len(places) > _NAMED_MAX else []
    return ", ".join([*places[:_NAMED_MAX], *more])


def unread(topic: str, begins: Mapping[int, int], ends: Mapping[int, int]) -> list[OffsetRange]:
    """Return the offset ranges between two positions of a topic."""
    ranges = (OffsetRange(topic, p, begins.get(p, 0), end) for p, end in ends.items())
    return [each for each in ranges if each.size]


def deletion(
    state: StoreState, name: str, topic_id: uuid.UUID, lost: list[OffsetRange] | None
) -> str:
    """Return the text about a deleted topic, with what went unread (None: unknown)."""
    again = " and made again" if state.find_topic(name) else ""
    told = (
        "how much of it went unread is not known (or this is another store than the one it was in)"
    )
    if lost is not None:
        places = named([f"{each.topic}-{each.partition} from {each.start}" for each in lost])
        where = f" ({places})" if lost else ""
        told = f"{_count_of(lost)} of its records went unread{where}"
    return f"Topic[{name}] with id {topic_id} was deleted{again}: {told}"


def readable(
    wanted: TopicRange, losses: Losses, history: History | None = None
) -> list[TopicRange]:
    """Return the parts of a range that the log holds; report the rest and gaps as lost."""
    inside = inside_log(wanted, losses, history)
    offsets = inside.offsets
    position, parts = offsets.start, []
    gaps = inside.topic.index(offsets.partition).gaps_between(offsets.start, offsets.end)
    if not gaps:
        return [inside] if offsets.size else []
    for gap in gaps:
        losses.report(
            f"{offsets.topic}-{offsets.partition}: offsets {gap.start} to {gap.end - 1} were lost "
            f"({gap.reason})",
            inside.topic.topic_id,
            [offsets.between(max(gap.start, position), min(gap.end, offsets.end))],
            topic=offsets.topic,
            partition=offsets.partition,
            start=gap.start,
            end=gap.end,
        )
        parts.append(offsets.between(position, max(gap.start, position)))
        position = max(gap.end, position)
    parts.append(offsets.between(min(position, offsets.end), offsets.end))
    return [TopicRange(inside.topic, part) for part in parts if part.size]


def inside_log(wanted: TopicRange, losses: Losses, history: History | None) -> TopicRange:
    """Return the part of a range that the log holds, and report the rest as lost.

    What an archive has of it was taken out before, and is only mentioned.
    """
    offsets = wanted.offsets
    part = wanted.topic.partition(offsets.partition)
    low, high = part.first, part.end
    # Not behind the range's end, though the log may begin there: who reads on counts from the end.
    start = min(max(offsets.start, min(low, offsets.end)), high)
    end = max(min(offsets.end, high), start)
    if (start, end) == (offsets.start, offsets.end):
        return wanted
    lost = [
        offsets.between(offsets.start, min(offsets.end, start)),
        offsets.between(end, offsets.end),
    ]
    told = f"{_count_of(lost)} records are lost"
    if offsets.start > high:
        told = f"unless the start was given so, {_SET_BACK}"
    archive = "" if history is None else history.what_it_holds(wanted.topic, offsets.partition)
    losses.report(
        f"{offsets.topic}-{offsets.partition}: offsets {offsets.start} to {offsets.end} (next) "
        f"were to be read, the log holds {low} to {high}{archive}: {told}",
        wanted.topic.topic_id,
        lost,
        topic=offsets.topic,
        partition=offsets.partition,
        start=offsets.start,
        end=offsets.end,
        available=(low, high),
    )
    return TopicRange(wanted.topic, offsets.between(start, end))


def _count_of(ranges: Iterable[OffsetRange]) -> int:
    return sum(each.size for each in ranges)
