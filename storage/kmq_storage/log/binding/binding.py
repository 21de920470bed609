"""Binding: check a commit against the state that it will follow, and give it its offsets.

Binding is pure: a state and units go in, entries or an error come out. It runs under the append
lock, on a state with every earlier commit, so its decisions hold for every reader.

It also makes storing idempotent. The sequence of a producer, or the batch number of an application,
is in the same commit as the records, and is compared with the last one in the log. A commit has
at most one of each, because it is compared only with earlier commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from kmq_storage.errors import ConflictError, IllegalStateError, KmqError, QueueFullError
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
    named_file,
)
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.group_entries import GroupPlanEntry, GroupReleaseEntry
from kmq_storage.format.layout_entries import (
    CondemnEntry,
    GapEntry,
    LayoutEntry,
    SegmentEntry,
    TrimEntry,
)
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueEntry,
    QueueStateEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.binding.queue_binding import (
    bound_acquire,
    bound_answer,
    bound_bind,
    bound_slip,
    check_look,
    check_queue,
    check_queue_capacity,
    check_queue_state,
    freed_by,
)
from kmq_storage.log.binding.topic_binding import check_topic
from kmq_storage.log.binding.uniq_binding import bound_uniqs, check_uniqs
from kmq_storage.log.state.group_state import (
    Ownership,
    check_forward,
    check_member,
    check_ownership,
    check_plan,
    check_release,
    may_be_below,
)
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, out_of_range


@dataclass(frozen=True, slots=True)
class Unit:
    """Entries that are accepted or refused together, and their inline record batches."""

    entries: tuple[Entry, ...]
    #: One Arrow message per RecordsEntry that is not staged, in the same order.
    bodies: tuple[pa.Buffer, ...] = ()
    #: Whether the files that the entries name are already on disk.
    synced: bool = True
    #: Whether the log already names those files; new files must not be condemned.
    known: bool = False
    #: For segments and gaps that follow the end of their partition: the end that they were planned
    #: for. None when they replace what is there.
    goes_on_at: int | None = None
    #: Whether group offsets must not go back: ConflictError for one behind the group's.
    forward: bool = False
    #: `StoreState.losses` of the records that it was made of: ConflictError when a failed sync may
    #: have taken some back since. None when it holds for whatever records stand there.
    losses: int | None = None
    #: The ids of the members that commit: FencedError when an epoch is another one's by now, as a
    #: failed sync took back a plan. Empty when nobody knows them.
    members: tuple[str, ...] = ()
    #: The times of ownership in which its offsets were noted: FencedError when one is over.
    owned: tuple[Ownership, ...] = ()


class RefusedError(Exception):
    """One unit of a commit can't be bound; the commit may be tried again without it."""

    def __init__(self, unit: int, cause: KmqError) -> None:
        super().__init__(str(cause))
        self.unit = unit
        self.cause = cause


class DuplicateCommitError(Exception):
    """The producer sequence or batch id of a unit was stored before, in commit `lsn`."""

    def __init__(self, lsn: int, unit: int = 0) -> None:
        super().__init__(f"already stored in commit {lsn}")
        self.lsn = lsn
        #: The number of that unit.
        self.unit = unit


def bind(state: StoreState, units: Sequence[Unit]) -> list[Entry]:
    """The entries of a commit, with offsets; RefusedError or DuplicateCommitError."""
    binding = _Binding(state)
    bound: list[Entry] = []
    for number, unit in enumerate(units):
        try:
            if state.condemned and not unit.known:
                binding.check_files(unit.entries)
            binding.begin_unit(unit)
            bound += [binding.entry(entry) for entry in unit.entries]
        except KmqError as error:
            check_stored(state, units, number)
            raise RefusedError(number, error) from error
        except DuplicateCommitError as error:
            error.unit = number
            raise
    return bound


def check_stored(state: StoreState, units: Sequence[Unit], refused: int) -> None:
    """DuplicateCommitError when a unit is refused of a commit that was stored before.

    It may be refused for what it did then: its `uniq` texts are known, its deliveries are answered.
    """
    for number, unit in enumerate(units[refused:], refused):
        for entry in unit.entries:
            if isinstance(entry, ProducerEntry):
                known = state.producers.get(entry.producer)
                if known and (known.epoch, known.sequence) == (entry.epoch, entry.sequence):
                    raise DuplicateCommitError(known.lsn, number)
                return


class _Binding:
    """The rules for each kind of entry, and what the commit's earlier entries changed."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        #: The end of each partition after the earlier entries.
        self._ends: dict[Key, int] = {}
        #: Records that the earlier entries add to each topic, less those that they free.
        self._added: dict[bytes, int] = {}
        #: Kinds and names of earlier entries of which a commit may have only one.
        self._identities: set[tuple[type, str]] = set()
        self._unit = Unit(())
        #: The topics that were found to have room for the whole unit.
        self._fitting: set[bytes] = set()
        #: The first offset that the unit got in each partition.
        self._bases: dict[Key, int] = {}
        #: Topic and digest of each `uniq` in the commit.
        self._uniqs: set[bytes] = set()
        #: The lanes that earlier units change.
        self._turns: dict[tuple[bytes, int], int] = {}

    def begin_unit(self, unit: Unit) -> None:
        """Begin a unit: its entries are accepted or refused together."""
        self._unit = unit
        self._fitting = set()
        self._bases = {}
        if unit.losses not in (None, self._state.losses):
            raise ConflictError(
                "a failed sync may have taken back what this was made of; read again",
                lsn=self._state.lsn,
            )
        for ownership in unit.owned:
            ownership.check()
        for entry in unit.entries:
            if isinstance(entry, AnswerEntry) and (freed := freed_by(entry)):
                self._added[entry.queue_id] = self._added.get(entry.queue_id, 0) - freed

    def check_files(self, entries: Sequence[Entry]) -> None:
        """ConflictError for files so old that collection may have deleted them as unnamed."""
        condemned = self._state.condemned
        for entry in entries:
            file_id = named_file(entry)
            if file_id and begun_at(file_id) < condemned:
                raise ConflictError(
                    f"file {file_id.hex()} was written so long ago that it was given up before "
                    "this commit; nothing is stored, write it again",
                    file_id=file_id.hex(),
                    begun=begun_at(file_id),
                    condemned=condemned,
                )

    def entry(self, entry: Entry) -> Entry:
        match entry:
            case RecordsEntry():
                return self._records(entry)
            case ProducerEntry():
                self._producer(entry)
            case GroupOffsetsEntry():
                self._group_offsets(entry)
            case BatchIdEntry():
                self._batch_id(entry)
            case TopicEntry():
                check_topic(self._state, entry)
            case GroupEntry():
                self._note(entry, entry.group)
                check_member(self._state.groups, entry)
            case GroupPlanEntry():
                self._note(entry, entry.group)
                check_plan(self._state.group(entry.group), entry)
            case GroupReleaseEntry():
                self._note(entry, entry.group)
                check_release(self._state.group(entry.group), entry, self._unit.members)
            case SegmentEntry() | TrimEntry() | GapEntry():
                self._layout(entry)
            case QueueEntry():
                self._note(entry, entry.name)
                check_queue(self._state, entry)
            case QueueStateEntry():
                self._note(entry, entry.name)
                check_queue_state(self._state, entry)
            case BindEntry():
                return bound_bind(self._state, entry)
            case ScheduleEntry():
                return entry.bound(self._bases[entry.queue_id, 0])
            case UniqEntry():
                return bound_uniqs(self._state, entry, self._bases, self._uniqs)
            case LookEntry():
                check_look(self._state, entry)
            case AcquireEntry():
                self._note(entry, entry.queue_id.hex())
                return bound_acquire(self._state, entry)
            case SlipAnswerEntry():
                return bound_slip(self._state, entry)
            case AnswerEntry():
                return bound_answer(self._state, entry)
            case TurnEntry():
                self._turn(entry)
            case CondemnEntry():
                pass  # the highest bound holds, so any order of these entries is right
            case _:
                assert_never(entry)
        return entry

    def _live_topic(self, topic_id: bytes) -> Topic:
        topic = self._state.topic_by_id(topic_id)
        if topic is None:
            raise self._state.gone.missing(topic_id)
        return topic

    def _records(self, entry: RecordsEntry) -> RecordsEntry:
        topic = self._live_topic(entry.topic_id)
        part = topic.partition(entry.partition)
        if part.doubt is not None:  # the next offset may be taken
            self._state.check_end(topic.name, entry.partition)
        self._check_capacity(topic)
        key = (entry.topic_id, entry.partition)
        base = self._ends.get(key, part.end)
        self._bases.setdefault(key, base)
        self._ends[key] = base + entry.rows
        self._added[entry.topic_id] = self._added.get(entry.topic_id, 0) + entry.rows
        return entry.bound(base)

    def _check_capacity(self, topic: Topic) -> None:
        """QueueFullError unless all records that the unit has for a topic fit."""
        capacity = topic.settings.capacity
        if topic.id in self._fitting or (capacity is None and not self._state.queues):
            return
        self._fitting.add(topic.id)
        records = (entry for entry in self._unit.entries if isinstance(entry, RecordsEntry))
        rows = sum(entry.rows for entry in records if entry.topic_id == topic.id)
        try:
            self._check_room(topic, capacity, rows)
        except QueueFullError:
            for entry in self._unit.entries:  # a record stored before needs no room
                if isinstance(entry, UniqEntry) and entry.topic_id == topic.id:
                    check_uniqs(self._state, entry, self._uniqs)
            raise

    def _check_room(self, topic: Topic, capacity: int | None, rows: int) -> None:
        added = self._added.get(topic.id, 0)
        if capacity is None:
            check_queue_capacity(self._state, topic.id, rows, added)
            return
        held = topic.held + added
        room = capacity - held
        if rows > room:
            raise QueueFullError(
                f"topic {topic.name} is full: it holds {held} of {capacity} records and "
                f"has room for {max(room, 0)} of {rows} more; trim it, send fewer, or alter its "
                "capacity",
                topic=topic.name,
                capacity=capacity,
                room=max(room, 0),
                rows=rows,
            )

    def _note(self, entry: Entry, name: str) -> None:
        identity = (type(entry), name)
        if identity in self._identities:
            raise IllegalStateError(f"{name} is in one commit twice", name=name)
        self._identities.add(identity)

    def _producer(self, entry: ProducerEntry) -> None:
        self._note(entry, entry.producer)
        self._state.producers.check_epoch(entry.producer, entry.epoch)
        known = self._state.producers.get(entry.producer)
        if known is None or known.epoch < entry.epoch:
            return
        if entry.sequence == known.sequence:
            raise DuplicateCommitError(known.lsn)
        if entry.sequence < known.sequence:
            raise IllegalStateError(
                f"producer {entry.producer} repeats sequence {entry.sequence} after "
                f"{known.sequence}",
                producer=entry.producer,
                sequence=entry.sequence,
            )

    def _group_offsets(self, entry: GroupOffsetsEntry) -> None:
        topic, group = self._live_topic(entry.topic_id), self._state.group(entry.group)
        check_ownership(group, entry, topic.name, self._unit.members)
        if self._unit.forward:
            check_forward(group, entry, topic.name)
        below = may_be_below(group, entry)
        for number, offset in entry.offsets:
            part = topic.partition(number)
            end = self._ends.get((topic.id, number), part.end)
            if not (0 if below else part.first) <= offset <= end:
                raise out_of_range(topic.name, number, offset, part)

    def _batch_id(self, entry: BatchIdEntry) -> None:
        self._note(entry, entry.application)
        known = self._state.batches.get(entry.application)
        if known is not None and entry.version <= known[0]:
            raise DuplicateCommitError(known[1])

    def _layout(self, entry: LayoutEntry) -> None:
        topic = self._live_topic(entry.topic_id)
        part = topic.partition(entry.partition)
        fits = not isinstance(entry, SegmentEntry) or _fits(entry, part.end)
        fits = fits and self._unit.goes_on_at in (None, part.end)
        if part.layout_lsn > entry.planned_lsn or not fits:
            raise ConflictError(
                f"{topic.name}-{entry.partition} was sealed, rewritten or trimmed since commit "
                f"{entry.planned_lsn}, on which this was planned; plan again",
                topic=topic.name,
                partition=entry.partition,
                planned_lsn=entry.planned_lsn,
            )

    def _turn(self, entry: TurnEntry) -> None:
        """ConflictError when another writer changed the lane first, maybe in this commit."""
        topic, lane = self._live_topic(entry.topic_id), (entry.topic_id, entry.lane)
        last = self._turns.get(lane, topic.turns.get(entry.lane, 0))
        if last > entry.seen:
            raise ConflictError(
                f"somebody changed lane {entry.lane} of {topic.name} in commit {last}; read again",
                topic=topic.name,
                lsn=min(last, self._state.lsn),
            )
        self._turns[lane] = self._state.lsn + 1


def _fits(entry: SegmentEntry, end: int) -> bool:
    """Whether a segment replaces existing records, or, copied from a store, follows them."""
    return entry.end_offset <= end or end in (0, entry.base_offset)
