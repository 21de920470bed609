"""The state of a store at one LSN: its topics, queues, groups, producers and batches.

The state is a pure function of the commits up to this LSN. Every process that applied the same
commits has the same state, so binding a commit needs no coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kmq_storage import limits
from kmq_storage.errors import CorruptionError, KmqError, NotFoundError
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
)
from kmq_storage.format.group_entries import GroupPlanEntry, GroupReleaseEntry
from kmq_storage.format.layout_entries import (
    CondemnEntry,
    GapEntry,
    LayoutEntry,
    SegmentEntry,
    TrimEntry,
)
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import QueueStateEntry
from kmq_storage.format.records import COMPACTED, TOMBSTONES
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.manifest_rows import row_of_segment, values_of_records
from kmq_storage.log.index.offset_index import Gap, Hole
from kmq_storage.log.state.changes import Changes
from kmq_storage.log.state.gone_topics import GoneTopic, GoneTopics
from kmq_storage.log.state.group_state import Group, Groups
from kmq_storage.log.state.producers import Producers, ProducerState
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import Queues, spans_of
from kmq_storage.log.state.queues.snapshot import restored
from kmq_storage.log.state.topic_settings import settings_of
from kmq_storage.log.state.topic_state import Partition, Topic, recovered_name
from kmq_storage.log.state.uniqs import Uniqs
from kmq_storage.model import LogDamage
from kmq_storage.names import queue_of_log


class StoreState:
    """The sum of all commits up to `lsn`; with a manifest, it also knows where records are.

    While one thread reads it, another one may apply later commits. So what loops over a dictionary
    of it loops over a list of its values, which is made in one step.
    """

    def __init__(self, manifest: Manifest | None = None) -> None:
        self.lsn = 0
        #: The time of the last commit, UTC us.
        self.time = 0
        #: By name. The own logs of queues are included, under names that no user's topic can have.
        self.topics: dict[str, Topic] = {}
        self.queues = Queues()
        self.uniqs = Uniqs()
        self.groups = Groups()
        self.producers = Producers()
        #: The last batch of each application and its LSN; the application that wrote last is last.
        self.batches: dict[str, tuple[int, int]] = {}
        self.gone = GoneTopics()
        #: Damaged commits that were skipped, because later commits are valid.
        self.damage: list[LogDamage] = []
        #: Damage at the end of the log: acknowledged commits can't be read, and none follows.
        self.broken: LogDamage | None = None
        #: Grows whenever a topic is created, changed or deleted.
        self.definitions = 0
        self.changes = Changes()
        #: The LSN of the checkpoint that this state began at, and `Hint.losses` then.
        self.checkpoint_lsn = self.losses = 0
        #: A reader looks for a newer checkpoint from this LSN or this monotonic time on.
        self.rebase_at = limits.REBASE_COMMITS
        self.rebase_time = 0.0
        #: Bytes of records as they were first written, and of segments that maintenance wrote.
        self.appended = self.rewritten = 0
        #: Commits can no longer name files that were begun before this LSN.
        self.condemned = 0
        #: Topics deleted, and partitions trimmed or cut, since the checkpoint.
        self.deleted, self.cut = set[bytes](), set[Key]()
        #: The last commit seen that let files go: a new layout of a partition, or a deleted topic.
        self.layout_lsn = 0
        self.manifest = manifest
        self._by_id: dict[bytes, Topic] = {}
        self._queue_rules = self.queues.rules()

    def not_before(self, time: int) -> int:
        """The log's time for a clock's time (UTC us): never before the last commit."""
        return max(time, self.time)

    def user_topics(self) -> list[Topic]:
        """The topics that users created, sorted by name, without the own logs of queues."""
        return [topic for name, topic in sorted(self.topics.items()) if queue_of_log(name) is None]

    def find_topic(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self.topics.get(name)

    def topic(self, name: str) -> Topic:
        """The topic of this name; NotFoundError when there is none."""
        found = self.topics.get(name) if isinstance(name, str) else None
        if found is None:
            queue = queue_of_log(str(name))
            raise self.missing("Queue", queue) if queue else self.missing("Topic", name)
        return found

    def queue(self, name: str) -> Queue:
        """The queue of this name; NotFoundError when there is none."""
        found = self.queues.find(name) if isinstance(name, str) else None
        if found is None:
            raise self.missing("Queue", name)
        return found

    def missing(self, kind: str, name: str) -> KmqError:
        """The error for an unknown topic, queue or group: CorruptionError if damage may hide it."""
        facts, lost = {kind.lower(): name}, self.lost_commits
        if not lost:
            return NotFoundError(f"{kind}[{name}] doesn't exist.", **facts)
        told = (
            f"{kind}[{name}] is not known, but commits {lost[-1].first_lsn} to {lost[-1].last_lsn} "
            f"in {lost[-1].file} can't be read ({lost[-1].reason}) that may have made it; put the "
            "file back from a copy, or give them up by `kmq repair --drop-damaged`"
        )
        return CorruptionError(told, file=lost[-1].file, **facts)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, unless it was deleted."""
        return self._by_id.get(topic_id)

    def add_topic(self, topic: Topic) -> None:
        """Add a topic, under its id and name."""
        self._by_id[topic.id] = topic
        self.topics[topic.name] = topic

    def group(self, name: str) -> Group:
        """The group of this name; an unknown one has nothing yet."""
        return self.groups.find(name)

    def group_offsets(self, group: str) -> dict[bytes, dict[int, int]]:
        """The offsets that a group committed, by topic id and partition; empty if unknown."""
        return self.group(group).offsets

    def batch_version(self, application: str) -> int | None:
        """The newest stored batch of an application."""
        found = self.batches.get(application)
        return found[0] if found else None

    def check_end(self, topic: str, partition: int) -> None:
        """CorruptionError when damaged commits may have had records after the partition's end."""
        part = self.topic(topic).partition(partition)
        damage = self.broken or part.doubt
        if damage is not None:
            raise CorruptionError(
                f"{topic}-{partition}: what follows offset {part.end} can't be read, commits "
                f"{damage.first_lsn} to {damage.last_lsn} in {damage.file} are damaged "
                f"({damage.reason}); those before are readable; put the file back from a copy",
                file=damage.file,
                topic=topic,
                partition=partition,
                start=part.end,
            )

    @property
    def lost_commits(self) -> list[LogDamage]:
        """All damage, in the order of the log."""
        return [*self.damage, *filter(None, [self.broken])]

    def note_damage(self, damage: LogDamage) -> None:
        """Note skipped commits, which may have had records of any partition."""
        self.damage.append(damage)
        for topic in self.topics.values():
            for part in topic.parts:
                part.doubt = part.doubt or damage
        self.changes.note_all()

    def apply(
        self, lsn: int, time: int, entries: list[Entry], *, file: int = 1, position: int = 0
    ) -> None:
        """Apply one commit, whose frame is in the log file with first LSN `file`, at `position`."""
        for entry in entries:
            if isinstance(entry, RecordsEntry):
                self._apply_records(entry, time, file, position)
            elif rule := _RULES.get(type(entry)):
                rule(self, entry, lsn, time)
            else:
                self._queue_rules[type(entry)](entry, lsn, time)
        self.lsn, self.time = lsn, time

    def _apply_records(self, entry: RecordsEntry, time: int, file: int, position: int) -> None:
        self.appended += entry.length
        topic = self._topic_of(entry)
        topic.columns |= entry.columns
        part = topic.parts[entry.partition]
        end = entry.base_offset + entry.rows
        if entry.base_offset < part.end:
            part.found_again(entry.base_offset, end)
        self._pass_over(entry, part)
        if part.index is not None:
            part.index.recent.append_values(values_of_records(entry, time, file, position))
        part.doubt = None
        part.end = max(part.end, end)
        part.rows += entry.rows
        part.size += entry.size
        self.changes.note(part)

    def _pass_over(self, entry: RecordsEntry | SegmentEntry, part: Partition) -> None:
        """Note missing offsets before an entry that begins after the partition's end.

        After damage they are a hole, which may be repaired; otherwise a repair gave them up.
        """
        if part.index is None or entry.base_offset <= part.end:
            return
        if self.damage:
            damage = part.doubt or self.damage[-1]
            part.index.holes.append(Hole(part.end, entry.base_offset, damage))
        else:
            part.index.cut_out(Gap(part.end, entry.base_offset, "given up by a repair"))
            self.cut.add((entry.topic_id, entry.partition))

    def _topic_of(self, entry: RecordsEntry | LayoutEntry) -> Topic:
        """The topic of an entry; it is recreated when the commit that created it is damaged."""
        topic = self._by_id.get(entry.topic_id)
        if topic is None:
            topic = Topic(entry.topic_id, recovered_name(entry.topic_id), self.manifest)
            self.add_topic(topic)
        known = topic.partitions
        topic.enlarge(entry.partition + 1)
        for part in topic.parts[known:] if self.damage else ():
            part.doubt = self.damage[-1]
        return topic

    def _laid_out(self, entry: LayoutEntry, lsn: int) -> Partition | None:
        """The partition whose layout an entry changes; None when its topic was deleted."""
        self.layout_lsn = lsn
        if self.gone.find(entry.topic_id) is not None:
            return None
        part = self._topic_of(entry).parts[entry.partition]
        part.layout_lsn = lsn
        return part

    def _apply_segment(self, entry: SegmentEntry, lsn: int, time: int) -> None:
        part = self._laid_out(entry, lsn)
        if part is not None and entry.end_offset > part.end:  # copied: they were in no commit
            self.appended += entry.length
        # An entry that only marks an unchanged segment as compacted writes nothing.
        elif not (entry.columns & COMPACTED and entry.rows == entry.old_rows):
            self.rewritten += entry.length
        if part is None:
            return
        part.tombstones = entry.waiting(part.tombstones)
        part.rows += entry.rows - entry.old_rows
        part.size += entry.size - entry.old_size
        if self.damage:  # commits of records that it counts as old may be lost
            part.rows, part.size = max(part.rows, entry.rows), max(part.size, entry.size)
        if entry.end_offset > part.end:
            if not part.end and not self.damage:  # copied from another store
                part.start = part.end = entry.base_offset
            self._pass_over(entry, part)
            part.end = entry.end_offset
            if entry.tombstones and (topic := self._by_id[entry.topic_id]).settings.schemas:
                topic.columns |= TOMBSTONES
        if part.index is not None:
            part.index.replace(row_of_segment(entry))
        self.changes.note(part)

    def _apply_trim(self, entry: TrimEntry, lsn: int, time: int) -> None:
        part = self._laid_out(entry, lsn)
        if part is None:
            return
        part.start = max(part.start, entry.start)
        part.end = max(part.end, part.start)  # the commits of trimmed records may be lost
        part.is_begun = self._by_id[entry.topic_id].settings.trims
        part.drop(entry.rows, entry.size)
        self.queues.trim(entry.topic_id, entry.partition, part.start)
        if part.index is not None:
            part.index.drop_before(part.start)
            self.cut.add((entry.topic_id, entry.partition))
        self.changes.note(part)

    def _apply_gap(self, entry: GapEntry, lsn: int, time: int) -> None:
        part = self._laid_out(entry, lsn)
        if part is None:
            return
        part.drop(entry.rows, entry.size)
        if entry.end > part.end:  # at most these offsets were lost behind the end
            part.end, part.doubt = entry.end, None
        if part.index is not None:
            part.index.cut_out(Gap(entry.start, entry.end, entry.reason, entry.lost))
            self.cut.add((entry.topic_id, entry.partition))
        self.changes.note(part)

    def _apply_condemn(self, entry: CondemnEntry, lsn: int, time: int) -> None:
        self.condemned = max(self.condemned, entry.before)

    def _apply_producer(self, entry: ProducerEntry, lsn: int, time: int) -> None:
        self.producers.note(entry.producer, ProducerState(entry.epoch, entry.sequence, lsn))

    def _apply_offsets(self, entry: GroupOffsetsEntry, lsn: int, time: int) -> None:
        group = self.groups.made(entry.group)
        group.offsets.setdefault(entry.topic_id, {}).update(entry.offsets)

    def _apply_batch(self, entry: BatchIdEntry, lsn: int, time: int) -> None:
        self.batches.pop(entry.application, None)
        self.batches[entry.application] = (entry.version, lsn)
        if len(self.batches) > limits.APPLICATIONS_REMEMBERED:
            del self.batches[next(iter(self.batches))]

    def _apply_queue_state(self, entry: QueueStateEntry, lsn: int, time: int) -> None:
        """Restore a queue that was copied from another store; records trimmed here are done."""
        queue = restored(entry)
        self.queues.add(queue)
        for key, (start, _) in spans_of(self, queue).items():
            if start:
                queue.trim(key, start)

    def _apply_uniqs(self, entry: UniqEntry, lsn: int, time: int) -> None:
        topic = self._by_id.get(entry.topic_id)
        if topic is not None:  # None when the commit that created it is damaged
            self.uniqs.apply(entry, time, topic.settings.uniq_window)

    def _apply_turn(self, entry: TurnEntry, lsn: int, time: int) -> None:
        topic = self._by_id.get(entry.topic_id)
        if topic is not None:  # None when the commit that created it is damaged
            topic.turns[entry.lane] = lsn

    def _apply_topic(self, entry: TopicEntry, lsn: int, time: int) -> None:
        self.definitions += 1
        if entry.partitions == 0:
            self._forget_topic(entry)
            self.layout_lsn = lsn
            return
        topic = self._by_id.get(entry.topic_id)
        if topic is None:
            topic = Topic(entry.topic_id, entry.name, self.manifest)
        elif entry.name not in self.topics:  # it was recreated after damage, under another name
            del self.topics[topic.name]
            topic.name = entry.name
        self.add_topic(topic)
        self.uniqs.expire(topic.id, time, topic.settings.uniq_window)  # a longer window is no other
        topic.settings = settings_of(entry.name, entry.settings)
        topic.enlarge(entry.partitions)

    def _forget_topic(self, entry: TopicEntry) -> None:
        topic = self._by_id.pop(entry.topic_id, None)
        left = {
            name: group.offsets.pop(entry.topic_id)
            for name, group in self.groups.items()
            if entry.topic_id in group.offsets
        }
        if topic is not None:  # None when the commit that created it is damaged
            del self.topics[topic.name]
            self.deleted.add(entry.topic_id)
            self.queues.forget_topic(entry.topic_id)
            self.uniqs.forget(entry.topic_id)
            self.changes.note_all()  # so that no reader keeps its partitions
            ends = tuple(part.end for part in topic.parts)
            self.gone.add(GoneTopic(topic.id, topic.name, ends, left))

    def _apply_group(self, entry: GroupEntry, lsn: int, time: int) -> None:
        if entry.generation == 0:
            self.groups.delete(entry.group)
            self.gone.forget_group(entry.group)
            return
        self.groups.made(entry.group).apply_member(entry, time)

    def _apply_plan(self, entry: GroupPlanEntry, lsn: int, time: int) -> None:
        self.groups.made(entry.group).apply_plan(entry, time)

    def _apply_release(self, entry: GroupReleaseEntry, lsn: int, time: int) -> None:
        if entry.group in self.groups:  # not when the commit that created it is damaged
            self.groups[entry.group].apply_release(entry)


#: Functions, since a state with methods in a table refers to itself, so its memory is freed late.
_RULES: Mapping[type, Callable[[StoreState, Any, int, int], None]] = {
    ProducerEntry: StoreState._apply_producer,
    GroupOffsetsEntry: StoreState._apply_offsets,
    BatchIdEntry: StoreState._apply_batch,
    TopicEntry: StoreState._apply_topic,
    GroupEntry: StoreState._apply_group,
    GroupPlanEntry: StoreState._apply_plan,
    GroupReleaseEntry: StoreState._apply_release,
    SegmentEntry: StoreState._apply_segment,
    TrimEntry: StoreState._apply_trim,
    GapEntry: StoreState._apply_gap,
    CondemnEntry: StoreState._apply_condemn,
    UniqEntry: StoreState._apply_uniqs,
    TurnEntry: StoreState._apply_turn,
    QueueStateEntry: StoreState._apply_queue_state,
}
