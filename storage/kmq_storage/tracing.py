"""Tracing one record: what happened to it, from the commits that are still in the log.

Each kind of entry that affects records has its case in `_Record.events`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kmq_storage import paths
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
)
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RELEASE,
    RETRY,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    Run,
)
from kmq_storage.format.records import column_of
from kmq_storage.keyed.receipts import Receipts
from kmq_storage.log.checkpoints.past import Past
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import GONE
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, out_of_range
from kmq_storage.model import Commit, to_datetime
from kmq_storage.names import group_of_letters, queue_log, queue_of_log
from kmq_storage.queues.filters import accepted
from kmq_storage.queues.letters import Letters
from kmq_storage.queues.untaken import Refusals, Term

#: The name of the event for each answer of a receiver.
_ANSWERS = {
    ACK: "acked",
    RETRY: "retried",
    EXTEND: "extended",
    DEAD: "dead-lettered",
    EXHAUSTED: "dead-lettered",
    RELEASE: "released",
    RECALL: "recalled",
}
#: The events after which a queue has nothing more to do with a record.
_ENDS = frozenset({"acked", "dead-lettered", "recalled", "finished", "expired", "refused"})


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One event in the life of a record."""

    #: The commit of the event; None when it is no longer in the log, or none tells the event yet.
    lsn: int | None
    time: datetime | None
    #: `sent`, `passed` (a group committed a later offset), `rewound` (a group went back to it or
    #: before it), `sealed` (it was moved to a segment), `compacted` (it was removed, and no commit
    #: says when), `trimmed`, `cut out`; in a queue `delivered`, `acked`, `retried`, `extended`,
    #: `dead-lettered`, `released`, `recalled`, `expired`, `refused` (by its filter), and `finished`
    #: with a reason, or when it is no longer known how, and no dead letter tells it.
    event: str
    #: Details: `producer`, `application`, `group`, `queue` (and `deleted`, if it was), `delivery`,
    #: `file` and so on. A dead letter was sent with `from_queue` or `from_group`, `from_offset` and
    #: so on, or `moved_back_from`. A record that became a dead letter, or was moved back, has
    #: `to_queue` or `to_topic`, `to_offset` and a `reason`, and `to_deleted` if that was deleted.
    facts: Mapping[str, Any]


def trace(log: CommitLog, name: str, partition: int, offset: int) -> list[TraceStep]:
    """The events of a record in the order of commits, first those no longer in the log."""
    state = log.refresh()
    topic = state.topic(name)
    part = topic.partition(partition)
    if not 0 <= offset < part.end:
        raise out_of_range(name, partition, offset, part)
    record = _Record(log, topic, partition, offset)
    told = [
        TraceStep(commit.lsn, commit.time, event, facts)
        for commit in log.commits(None)
        for event, facts in record.events(commit)
    ]
    record.refusals.name_filters(record.queues, topic.id)
    return [*_before(record, state, told), *told, *_after(record, log.now_us())]


def _before(record: _Record, state: StoreState, told: Sequence[TraceStep]) -> Iterator[TraceStep]:
    """The events that must have happened before the commits that are still in the log."""
    if not record.is_begun:
        yield TraceStep(None, None, "sent", record.letters.believed_origin())
    silent = {name: record.committed(state, name) for name in {*state.groups} - {*record.passed}}
    for name, committed in sorted({**silent, **record.passed_before}.items()):
        if committed > record.offset:
            yield TraceStep(None, None, "passed", {"group": name, "committed": committed})
    for gap in () if any(step.event == "cut out" for step in told) else record.gaps:
        yield TraceStep(None, None, "cut out", {"reason": gap.reason})
    if record.is_given_up and not any(step.event == "trimmed" for step in told):
        yield TraceStep(None, None, "trimmed", {"start": record.first})
    if not (record.is_given_up or record.is_begun):
        yield from _finished(record, state, told)


def _finished(record: _Record, state: StoreState, told: Sequence[TraceStep]) -> Iterator[TraceStep]:
    """The queues and groups that finished the record in commits that are no longer in the log."""
    ended = {step.facts.get("queue") for step in told if step.event in _ENDS}
    for queue in state.queues:
        is_finished = _is_finished(queue, (record.topic_id, record.partition), record.offset)
        if queue.name in ended or not (is_finished or record.topic_id in queue.topic_ids()):
            continue
        letter = record.letters.kept_in(queue_log(queue.dead_letter), {"queue": queue.name})
        if letter:
            yield TraceStep(None, None, "dead-lettered", letter)
        elif is_finished:
            yield TraceStep(
                None, None, "finished", {"queue": queue.name, **record.refusal_by(queue)}
            )
    for receivers in record.receipts.settled():
        yield TraceStep(None, None, "finished", {"group": receivers})
    buried = {step.facts.get("group") for step in told if step.event == "dead-lettered"}
    for topic in state.user_topics():
        group = group_of_letters(topic.name)
        if group is None or group in buried:
            continue
        if letter := record.letters.kept_in(topic.name, {"group": group}):
            yield TraceStep(None, None, "dead-lettered", letter)


def _after(record: _Record, now: int) -> Iterator[TraceStep]:
    """What is certain, though no commit tells it yet, as nobody has received since."""
    key, own = (record.topic_id, record.partition), record.letters.record
    if own is not None and not own.rows:
        yield TraceStep(None, None, "compacted", {})
    for queue in record.queues.values():
        source, facts = queue.sources.get(key), {"queue": queue.name}
        expired = () if source is None or queue.ended_slips(now) else source.rows.expired(now)
        if source is not None and record.offset in expired:
            at = source.first_expiry(Run(*key, record.offset, 1, 0))
            yield TraceStep(None, None, "expired", {**facts, "expires_at": to_datetime(at)})
        if source is not None and len(source.rows.offsets(record.offset, record.offset + 1)):
            continue  # a receiver has it, or had it before the queue was bound anew
        if record.offset >= queue.looked_up_to(key) and (refusal := record.refusal_by(queue)):
            yield TraceStep(None, None, "refused", {**facts, **refusal})


def _is_finished(queue: Queue, key: Key, offset: int) -> bool:
    """Whether a queue has nothing more to do with a record: it got an end, or no way in."""
    source, binding = queue.sources.get(key), queue.bindings.get(key[0])
    if source is None or offset < (0 if binding is None else binding.start(key[1])):
        return False
    for rows in source.rows.spans(offset, offset + 1):
        return bool((rows["state"] == GONE).all())
    return offset < source.next


class _Record:
    """The traced record, and whether each known group has passed it."""

    def __init__(self, log: CommitLog, topic: Topic, partition: int, offset: int) -> None:
        self.topic_id, self.partition, self.offset = topic.id, partition, offset
        #: The first offset that its partition has now.
        self.first = topic.partition(partition).first
        self.is_given_up = self.first > offset
        #: What a repair cut out there, or a copy never had: one gap at most.
        self.gaps = topic.index(partition).gaps_between(offset, offset + 1)
        #: The existing queues by id.
        self.queues = {each.id: each for each in log.state.queues}
        self._gone = log.state.gone
        self.letters = Letters(log, (topic.id, partition, offset))
        self.receipts = Receipts(log, topic, offset)
        self.refusals = Refusals(partition, offset)
        #: Whether the commit that sent it is still in the log, and so all that happened to it.
        self.is_begun = False
        self._past = Past(log.files)
        self.passed: dict[str, bool] = {}
        #: What groups had committed that passed it in commits that are no longer in the log.
        self.passed_before: dict[str, int] = {}
        self._term = Term()
        self._is_trimmed = False
        #: The ids of queues that delivered it, and got no answer that ends it.
        self._open: set[bytes] = set()

    def events(self, commit: Commit) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The events of the record in a commit."""
        entries = commit.entries
        self._past.first_lsn = self._past.first_lsn or commit.lsn
        for index, entry in enumerate(entries):
            match entry:
                case RecordsEntry():
                    if self._in(entry, entry.base_offset, entry.base_offset + entry.rows):
                        letter = self.letters.came_from(entry, commit)
                        times = self._term.begin(entries, self.topic_id, self.offset)
                        self.receipts.begin(entry, commit)
                        self.is_begun = True
                        yield "sent", {**(letter or _sender(entries[index + 1 :])), **times}
                    for facts in self.letters.given_up(entry, commit):
                        yield "dead-lettered", facts
                    yield from self.receipts.told(entry, commit)
                case GroupOffsetsEntry(topic_id=self.topic_id):
                    yield from self._committed(entry, commit.lsn)
                case GroupEntry(generation=0):
                    self.passed[entry.group] = False
                case SegmentEntry():
                    start = entry.base_offset + _is_begun(entries[max(index - 1, 0)], entry)
                    if self._in(entry, start, entry.end_offset):
                        key = (self.topic_id, self.partition)
                        file = paths.segment_file(*key, entry.base_offset, entry.file_id)
                        yield "sealed", {"file": file}
                case TrimEntry() if not self._is_trimmed:
                    end = entry.start + _is_begun(entry, *entries[index + 1 : index + 2])
                    if self._in(entry, 0, end):
                        self._is_trimmed = True
                        if self._was_there_before(commit.lsn):
                            yield "trimmed", {"start": entry.start}
                case GapEntry():
                    if self._in(entry, entry.start, entry.end):
                        yield "cut out", {"reason": entry.reason}
                case BindEntry(topic_id=self.topic_id):
                    self.refusals.bind(entry)
                case LookEntry():
                    yield from self._looked_at(entry)
                case AcquireEntry():
                    yield from self._acquired(entry)
                case AnswerEntry():
                    yield from self._answered(entry, commit)
                case _:
                    pass

    def _looked_at(self, entry: LookEntry) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not self._in(entry, entry.start, entry.end) or entry.queue_id in self._open:
            return
        refused = self.refusals.look(entry, self._named(entry.queue_id))
        # A look finds nothing of what was lost, trimmed or compacted before.
        own = self.letters.record if refused else None
        was_there = self.is_given_up if own is None else own.rows
        if refused and was_there and not self._is_trimmed:
            yield "refused", refused

    def _acquired(self, entry: AcquireEntry) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if entry.queue_id == self.topic_id and (over := self._term.end(entry.time)):
            yield "expired", {**self._named(entry.queue_id), **over}
        for facts in self._handed(entry):
            self._open.add(entry.queue_id)
            self._term.hold(entry)
            yield "delivered", {**facts, "client": entry.client}

    def _answered(
        self, entry: AnswerEntry, commit: Commit
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for facts in self._handed(entry):
            self._term.answer(entry)
            event = _event_of(entry)
            if event in _ENDS:
                self._open.discard(entry.queue_id)
            why = {"reason": entry.reason} if entry.reason else {}
            yield event, {**facts, **why, **self.letters.went_to(facts["queue"], entry, commit)}

    def _named(self, queue_id: bytes) -> Mapping[str, Any]:
        """The facts that name a queue; of one that was deleted long ago, only the id is known."""
        queue = self.queues.get(queue_id)
        if queue is not None:
            return {"queue": queue.name}
        gone = self._gone.find(queue_id)
        name = None if gone is None else queue_of_log(gone.name)
        return {"queue": name or queue_id.hex(), "deleted": True}

    def refusal_by(self, queue: Queue) -> Mapping[str, Any]:
        """The filter that a queue has for the record today, if it refuses the record."""
        expression, _ = queue.filter_at((self.topic_id, self.partition), self.offset)
        if expression is None or (own := self.letters.record) is None or not own.rows:
            return {}
        column = column_of(own.batch, "properties")
        let_in = accepted(expression, column, own.rows)[0].as_py()
        return {} if let_in else {"filter": expression}

    def _handed(self, entry: AcquireEntry | AnswerEntry) -> Iterator[Mapping[str, Any]]:
        """The record's delivery in an entry of a queue, if there is one."""
        for run in entry.runs:
            if self._in(run, run.first, run.end):
                yield {**self._named(entry.queue_id), "delivery": times_of(run.delivery)}

    def _in(
        self,
        entry: RecordsEntry | SegmentEntry | TrimEntry | GapEntry | LookEntry | Run,
        start: int,
        end: int,
    ) -> bool:
        own = (entry.topic_id, entry.partition) == (self.topic_id, self.partition)
        return own and start <= self.offset < end

    def _was_there_before(self, lsn: int) -> bool:
        """Whether it is certain that no trim before a commit dropped it."""
        if self.is_begun:
            return True
        before = self._past.before(lsn)
        topic = None if before is None else before.topic_by_id(self.topic_id)
        return topic is not None and topic.partition(self.partition).first <= self.offset

    def committed(self, state: StoreState, group: str) -> int:
        """What a group has committed in the record's partition."""
        known = state.groups.get(group)
        offsets = {} if known is None else known.offsets
        return offsets.get(self.topic_id, {}).get(self.partition, 0)

    def _committed(
        self, entry: GroupOffsetsEntry, lsn: int
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for partition, committed in entry.offsets:
            if partition != self.partition:
                continue
            if entry.group not in self.passed:
                self._look_back(entry.group, committed, lsn)
            is_past = committed > self.offset
            if is_past != self.passed[entry.group]:
                facts = {"group": entry.group, "committed": committed}
                yield "passed" if is_past else "rewound", facts
            self.passed[entry.group] = is_past

    def _look_back(self, group: str, committed: int, lsn: int) -> None:
        """Before its first commit in the log, a group may have passed the record."""
        before = None if self.is_begun else self._past.before(lsn)
        if before is not None:
            committed = self.committed(before, group)
        self.passed[group] = committed > self.offset and not self.is_begun
        if self.passed[group]:  # if no checkpoint tells, no commit is named that may be wrong
            self.passed_before[group] = committed


def _event_of(entry: AnswerEntry) -> str:
    """The name of an answer; one with a reason finishes what nobody got, unless it is a retry."""
    return "finished" if entry.reason and entry.answer != RETRY else _ANSWERS[entry.answer]


def _is_begun(trim: Entry, *behind: Entry) -> bool:
    """Whether a trim drops one offset more, which belongs to a run that begins queues instead."""
    return isinstance(trim, TrimEntry) and any(
        isinstance(segment, SegmentEntry)
        and (segment.topic_id, segment.partition) == (trim.topic_id, trim.partition)
        and segment.base_offset == trim.start
        for segment in behind
    )


def _sender(behind: Sequence[Entry]) -> Mapping[str, Any]:
    """The sender of the records before these entries, which ends their unit."""
    for entry in behind:
        match entry:
            case ProducerEntry():
                return {"producer": entry.producer, "sequence": entry.sequence}
            case BatchIdEntry():
                return {"application": entry.application, "version": entry.version}
            case _:
                pass
    return {}
