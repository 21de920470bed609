"""Finding where a dead letter came from, and where a record went that became one.

A dead letter is in the own log of its queue, in the same commit as the answer that made it one; or,
for an OpenMessaging queue, as the positions of its consumers. One of a group is in the topic of the
group's dead letters. A record that was moved back is in the same commit as the answer that finished
the dead letter.
Properties of the dead letter tell which of several records belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from kmq_storage.cached import cached_property
from kmq_storage.errors import KmqError
from kmq_storage.format.entries import GroupOffsetsEntry, RecordsEntry
from kmq_storage.format.layout import layout_of
from kmq_storage.format.matching import Pair, WantedRecords
from kmq_storage.format.queue_entries import ACK, DEAD, EXHAUSTED, AnswerEntry
from kmq_storage.format.records import column_of, timestamps_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.as_sent import as_sent
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.log.state.gone_topics import GoneTopic
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Commit
from kmq_storage.names import group_of_letters, positions_group, queue_of_log, users_topic

#: Topic id, partition and offset of one record.
RecordAddress: TypeAlias = tuple[bytes, int, int]
_PREFIX = "dead_letter_"
#: What each dead letter has, besides its queue or group. A record with some of them only has them
#: from its sender.
_LETTER = frozenset({"offset", "count", "reason"})
_ORIGIN = ("topic", "partition", "offset")
_COLUMNS = frozenset({"properties", "_properties", "timestamp", "_timestamp"})
_ROWS = 16_384
_ANY = WantedRecords()


@dataclass(frozen=True, slots=True)
class _Letter:
    """A record with the properties of a dead letter, where dead letters are kept."""

    #: The topic that has the record: a queue's own log, or the topic of a group's dead letters.
    topic: str
    partition: int
    offset: int
    #: The timestamp, which is that of the original record (UTC microseconds).
    time: int
    #: The properties, without their prefix.
    facts: Mapping[str, Any]
    #: Whether its topic was deleted: only its commit has it still.
    is_gone: bool = False

    @property
    def queue(self) -> str | None:
        """The queue that has the record; None for a group's dead letter."""
        return queue_of_log(self.topic)

    @property
    def origin(self) -> tuple[Any, ...]:
        """The queue, topic, partition and offset of the original record; the topic may be None."""
        return tuple(self.facts.get(name) for name in ("queue", *_ORIGIN))

    @property
    def destination(self) -> Mapping[str, Any]:
        """Where it is, as a fact of its original record."""
        place: dict[str, Any] = {"to_queue": self.queue, "to_offset": self.offset}
        if self.queue is None:
            place = {"to_topic": self.topic, "to_partition": self.partition}
            place["to_offset"] = self.offset
        return place | {"to_deleted": True} if self.is_gone else place

    @property
    def source(self) -> Mapping[str, Any]:
        """Where it is from; old letters may also have what an earlier death gave them."""
        names = ("group" if self.queue is None else "queue", *_ORIGIN, "count", "reason")
        return {f"from_{n}": self.facts[n] for n in names if n in self.facts}

    @property
    def is_back(self) -> bool:
        """Whether it was moved back to the queue it came from, at the last time or the first."""
        homes = (self.facts.get("queue"), self.facts.get("home"))
        return self.queue is not None and self.queue in homes

    def given_up_by(self, commit: Commit) -> Mapping[str, Any]:
        """The group, or the queue of an OpenMessaging consumer, that made it in this commit."""
        if self.queue is None:
            group = group_of_letters(self.topic)
            return {"group": group} if group == self.facts["group"] else {}
        queue = self.facts["queue"]
        groups = {each.group for each in _positions(commit)}
        return {"queue": queue} if positions_group(str(queue)) in groups else {}


class Letters:
    """Finds dead letters in the commits of one record's events."""

    def __init__(self, log: CommitLog, place: RecordAddress) -> None:
        self._log = log
        self._place = place
        self._reader = ChunkReader(log.files)
        #: What letters of the record have, and few others.
        self._mine = WantedRecords(properties=(Pair(f"{_PREFIX}offset", place[2], "int"),))
        #: The record itself, if it is a dead letter and its commit was traced.
        self._own: _Letter | None = None

    def came_from(self, sent: RecordsEntry, commit: Commit) -> Mapping[str, Any]:
        """The origin of a record that was sent in this commit as a dead letter or moved back."""
        answers = [e for e in commit.entries if isinstance(e, AnswerEntry)]
        offset = self._place[2]
        for letter in self._read(sent, commit, offset, offset + 1):
            self._own = letter
            if letter.is_back and any(each.answer == ACK for each in answers):
                return {"moved_back_from": self._dead_letters_of(answers)}
            is_dead = any(each.answer in (DEAD, EXHAUSTED) for each in answers)
            if is_dead or letter.given_up_by(commit):
                return letter.source
        return {}

    def went_to(self, queue: str, answer: AnswerEntry, commit: Commit) -> Mapping[str, Any]:
        """The destination of a record that was answered in this commit and moved."""
        entries = (each for each in commit.entries if isinstance(each, RecordsEntry))
        moved = [each for each in entries if self._queue(each.topic_id)]
        if not moved or answer.answer not in (ACK, DEAD, EXHAUSTED):
            return {}
        origin = self._origin_back() if answer.answer == ACK else (queue, *self._named())
        for each in moved:
            end = each.base_offset + each.rows
            for letter in self._read(each, commit, each.base_offset, end):
                if letter.origin == origin and letter.is_back == (answer.answer == ACK):
                    reason = {} if letter.is_back else {"reason": letter.facts["reason"]}
                    return {**letter.destination, **reason}
        return {}

    def given_up(self, sent: RecordsEntry, commit: Commit) -> Iterator[Mapping[str, Any]]:
        """Who gave the record up in this commit without an answer, and where these letters are."""
        moved = {(e.topic_id, number) for e in _positions(commit) for number, _ in e.offsets}
        # Only a listener that commits by itself may have nothing to commit with its letters.
        if self._place[:2] not in moved and (moved or self._queue(sent.topic_id) is not None):
            return
        end = sent.base_offset + sent.rows
        for letter in self._read(sent, commit, sent.base_offset, end):
            giver = letter.given_up_by(commit)
            if giver and letter.origin[1:] == self._named():
                yield {**giver, **letter.destination, "reason": letter.facts["reason"]}

    def believed_origin(self) -> Mapping[str, Any]:
        """Where the record came from by its properties, when its commit is no longer in the log."""
        letter = next(self._scan(*self._place, self._place[2] + 1), None)
        if letter is None:
            return {}
        if letter.queue is None:
            is_own = letter.facts["group"] == group_of_letters(letter.topic)
            return letter.source if is_own else {}
        died_in = self._log.state.queues.find(letter.facts["queue"])
        if died_in is None:
            return {}
        if letter.is_back:
            return {"moved_back_from": died_in.dead_letter}
        return letter.source if letter.queue == died_in.dead_letter else {}

    def kept_in(self, name: str, giver: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where a topic of letters has the one that this queue or group made, and why.

        Empty without one, or where the record can't be read: its timestamp tells it from a record
        of an earlier topic with the same name.
        """
        topic = self._log.state.find_topic(name)
        own = self.record
        if topic is None or own is None or not own.rows:
            return {}
        (time,), named = timestamps_of(own.batch).to_pylist(), self._named()
        for number, part in enumerate(topic.parts):
            for letter in self._scan(topic.id, number, 0, part.end, self._mine):
                made_by = {kind: letter.facts.get(kind) for kind in giver}
                if (letter.time, letter.origin[1:], made_by) == (time, named, giver):
                    return {**giver, **letter.destination, "reason": letter.facts["reason"]}
        return {}

    @cached_property
    def record(self) -> Slice | None:
        """The record itself, no row if compaction removed it; None if it can't be read."""
        return next(self._slices(*self._place, self._place[2] + 1), None)

    def _origin_back(self) -> tuple[Any, ...] | None:
        """The origin of a dead letter that is moved back; None for another record."""
        topic_id, partition, offset = self._place
        own = self._own or next(self._scan(topic_id, partition, offset, offset + 1), None)
        return None if own is None else own.origin

    def _named(self) -> tuple[str | None, int, int]:
        """The record's address as in properties, where a queue's own log has no topic name."""
        topic_id, *rest = self._place
        topic = self._log.state.topic_by_id(topic_id)
        name = None if topic is None else users_topic(topic.name)
        return name, rest[0], rest[1]

    def _queue(self, topic_id: bytes) -> str | None:
        """The queue whose own log this is, or was."""
        topic = self._topic(topic_id)
        return None if topic is None else queue_of_log(topic.name)

    def _topic(self, topic_id: bytes) -> Topic | GoneTopic | None:
        """The topic, also a deleted one while it is remembered."""
        state = self._log.state
        return state.topic_by_id(topic_id) or state.gone.find(topic_id)

    def _dead_letters_of(self, answers: Sequence[AnswerEntry]) -> str:
        names = (self._queue(each.queue_id) or each.queue_id.hex() for each in answers)
        return ", ".join(sorted(set(names)))

    def _read(self, sent: RecordsEntry, commit: Commit, start: int, end: int) -> Iterator[_Letter]:
        """The letters of a range that were sent with a commit, as far as they can still be read."""
        topic = self._topic(sent.topic_id)
        if topic is None or _reader_of(topic.name) is None:
            return
        with suppress(KmqError):  # staged, and collected meanwhile
            letters = self._as_sent(topic, sent, commit)
            yield from (each for each in letters if start <= each.offset < end)
            return
        yield from self._scan(sent.topic_id, sent.partition, start, end)

    def _as_sent(
        self, topic: Topic | GoneTopic, sent: RecordsEntry, commit: Commit
    ) -> list[_Letter]:
        """The letters of a commit that is in the log."""
        if isinstance(topic, GoneTopic):
            is_gone, layout = True, layout_of((), _COLUMNS)
        else:
            is_gone, layout = False, topic.layout(_COLUMNS)
        batch = as_sent(self._reader, layout, sent, commit)
        offsets = range(sent.base_offset, sent.base_offset + sent.rows)
        letters = _letters_in((topic.name, sent.partition), batch, offsets)
        return [replace(each, is_gone=is_gone) for each in letters]

    def _scan(
        self, topic_id: bytes, partition: int, start: int, end: int, wanted: WantedRecords = _ANY
    ) -> Iterator[_Letter]:
        """The letters of a range of a topic that keeps them."""
        topic = self._log.state.topic_by_id(topic_id)
        if topic is None or _reader_of(topic.name) is None:
            return
        for part in self._slices(topic_id, partition, start, end):
            found = part.taken(wanted.rows(part.batch))
            yield from _letters_in((topic.name, partition), found.batch, found.offsets().tolist())

    def _slices(self, topic_id: bytes, partition: int, start: int, end: int) -> Iterator[Slice]:
        """What of a range can still be read."""
        topic = self._log.state.topic_by_id(topic_id)
        if topic is None:
            return
        span = (max(start, topic.partition(partition).first), end)
        layout = topic.layout(_COLUMNS)
        with suppress(KmqError):  # damaged, or collected meanwhile: the rest of the path holds
            yield from scan(
                self._log, self._reader, topic, partition, span, batch_rows=_ROWS, layout=layout
            )


def _reader_of(topic: str) -> str | None:
    """The property that names who gave a topic's letters up; None for a topic without letters."""
    if queue_of_log(topic) is not None:
        return "queue"
    return None if group_of_letters(topic) is None else "group"


def _positions(commit: Commit) -> Iterator[GroupOffsetsEntry]:
    return (each for each in commit.entries if isinstance(each, GroupOffsetsEntry))


def _letters_in(
    place: tuple[str, int], batch: pa.RecordBatch, offsets: Sequence[int]
) -> Iterator[_Letter]:
    column, names = column_of(batch, "properties"), _LETTER | {_reader_of(place[0])}
    rows = [] if column is None else column.to_pylist()
    for offset, pairs, time in zip(offsets, rows, timestamps_of(batch).to_pylist(), strict=False):
        facts = _facts(pairs or ())
        if facts.keys() >= names:
            yield _Letter(*place, offset, time, facts)


def _facts(pairs: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """What properties say of a letter, without the kinds of their values."""
    return {
        name.removeprefix(_PREFIX): next((v for v in value.values() if v is not None), None)
        for name, value in pairs
        if name.startswith(_PREFIX)
    }
