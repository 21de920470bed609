"""The bounds that partitions had before the first commit in the log, inferred from later commits.

A repair needs them when the checkpoint is lost and the log no longer has all commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kmq_storage.format.entries import Entry, GroupOffsetsEntry, RecordsEntry
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import AcquireEntry, AnswerEntry, BindEntry, LookEntry


@dataclass(slots=True)
class PartitionEnds:
    """The bounds of each partition, as far as the commits that are left imply them."""

    #: The first offset of each partition in the log's records: the partition's end before the log.
    logged: dict[Key, int] = field(default_factory=dict)
    #: A lower bound of the end of each partition: something was stored or read up to there.
    at_least: dict[Key, int] = field(default_factory=dict)
    _begins: dict[Key, set[int]] = field(default_factory=dict)
    _explained: dict[Key, set[int]] = field(default_factory=dict)

    def note(self, entry: Entry) -> None:
        """Note what an entry implies.

        Once records of a partition were noted, later entries don't raise its lower bound.
        """
        if isinstance(entry, RecordsEntry):
            self.logged.setdefault((entry.topic_id, entry.partition), entry.base_offset)
            return
        self._note_begin(entry)
        for key, end in _ends_in(entry):
            if key not in self.logged:
                self.note_end(key, end)

    def note_end(self, key: Key, end: int) -> None:
        """Note that a partition did not end before this offset."""
        self.at_least[key] = max(self.at_least.get(key, 0), end)

    def begins(self, key: Key) -> list[int]:
        """Where segments of a partition begin, without the begins that trims and gaps explain."""
        return sorted(self._begins.get(key, set()) - self._explained.get(key, set()))

    def _note_begin(self, entry: Entry) -> None:
        match entry:
            case TrimEntry(start=at) | GapEntry(end=at):
                self._explained.setdefault((entry.topic_id, entry.partition), set()).add(at)
            case SegmentEntry(base_offset=at):
                self._begins.setdefault((entry.topic_id, entry.partition), set()).add(at)


def _ends_in(entry: Entry) -> Iterable[tuple[Key, int]]:
    """The partitions that an entry is about, each with a lower bound of its end."""
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
            return [(run.key, run.end) for run in runs]
    return []


def _of_topic(topic_id: bytes, offsets: Iterable[tuple[int, int]]) -> Iterator[tuple[Key, int]]:
    return (((topic_id, number), end) for number, end in offsets)
