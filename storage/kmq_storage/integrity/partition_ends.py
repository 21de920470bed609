"""Where partitions ended before the first commit that is left, as far as later ones tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kmq_storage.format.entries import Entry, GroupOffsetsEntry, RecordsEntry
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import AcquireEntry, AnswerEntry, BindEntry, LookEntry


@dataclass(slots=True)
class PartitionEnds:
    """The end of each partition that has records in the log, and the least one of others."""

    #: The first offset of each partition that the log still has: there it ended before.
    logged: dict[Key, int] = field(default_factory=dict)
    #: Where something stood or was read in one, it did not end before.
    at_least: dict[Key, int] = field(default_factory=dict)

    def note(self, entry: Entry) -> None:
        """What an entry tells; of a partition nothing counts behind its first records."""
        if isinstance(entry, RecordsEntry):
            self.logged.setdefault((entry.topic_id, entry.partition), entry.base_offset)
            return
        for key, end in _told(entry):
            if key not in self.logged:
                self.at_least[key] = max(self.at_least.get(key, 0), end)


def _told(entry: Entry) -> Iterable[tuple[Key, int]]:
    """The partitions that an entry is about, and how far each of them goes at least."""
    match entry:
        case SegmentEntry(end_offset=end) | TrimEntry(start=end) | GapEntry(end=end):
            return [((entry.topic_id, entry.partition), end)]
        case GroupOffsetsEntry():
            return _of_topic(entry.topic_id, entry.offsets)
        case BindEntry(starts=tuple() as starts):
            return _of_topic(entry.topic_id, enumerate(starts))
        case LookEntry():
            return [((entry.topic_id, entry.partition), entry.end)]
        case AcquireEntry() | AnswerEntry():
            runs = entry.runs
            return [((run.topic_id, run.partition), run.first + run.rows) for run in runs]
    return []


def _of_topic(topic_id: bytes, offsets: Iterable[tuple[int, int]]) -> Iterator[tuple[Key, int]]:
    return (((topic_id, number), end) for number, end in offsets)
