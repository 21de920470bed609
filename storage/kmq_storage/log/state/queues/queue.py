"""The state of a queue: what it reads, which records are locked, and which were answered.

All of it is pure. Which records a receiver gets, and whether an answer comes too late, is decided
when the commit is bound, on the state that it follows and by the time that its entry names. So
every process comes to the same result, and no clock is read afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.errors import ConflictError, FormatVersionError
from kmq_storage.format.delivery_numbers import DELIVERIES_APART
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RELEASE,
    RETRY,
    TAKEN_OVER,
    TAKING_OVER,
    AcquireEntry,
    AnswerEntry,
    LookEntry,
    Run,
    SealedSlipAcquireEntry,
    SlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import Schedule
from kmq_storage.log.state.queues.busy import Busy
from kmq_storage.log.state.queues.late_answers import NameOf, too_late
from kmq_storage.log.state.queues.rows import FREE, NEVER, PRIORITY, new_rows
from kmq_storage.log.state.queues.runs import by_partition
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.queues.source import Source, Wish, tallied
from kmq_storage.log.state.queues.topics import Binding, Left
from kmq_storage.model import QueueSettings, QueueStats

#: Start and end of the partitions that a queue reads.
Spans: TypeAlias = Mapping[Key, tuple[int, int]]

#: No limit: no record has so many deliveries.
_UNLIMITED = 2**31 - 1


@dataclass(slots=True)
class Queue:
    """One queue; its own log is the topic with the same id."""

    id: bytes
    name: str
    settings: QueueSettings
    #: By topic id.
    bindings: dict[bytes, Binding] = field(default_factory=dict)
    #: By partition; a source is added when the queue first changes something there.
    sources: dict[Key, Source] = field(default_factory=dict)
    #: Unfinished delivered records of topics that the queue no longer reads.
    left: Left = field(default_factory=Left)
    #: How often each topic was unbound; delivery numbers begin higher after each time, so that
    #: none is used twice.
    unbound: dict[bytes, int] = field(default_factory=dict)
    #: Counts of records since the queue was created, as in `QueueStats`.
    delivered: int = 0
    acked: int = 0
    dead: int = 0
    expired: int = 0
    #: How often records were delivered; each time, another partition has its turn first.
    turns: int = 0
    #: By id.
    slips: dict[bytes, Slip] = field(default_factory=dict)

    @property
    def log_key(self) -> Key:
        """The partition of its own log."""
        return self.id, 0

    @property
    def deliveries_max(self) -> int:
        """The most deliveries of a record."""
        limit = self.settings.max_deliveries
        return _UNLIMITED if limit is None else limit

    @property
    def dead_letter(self) -> str:
        """The name of the queue that its dead letters go to."""
        return self.settings.dead_letter or f"{self.name}.dlq"

    def topic_ids(self) -> list[bytes]:
        """The ids of the topics that the queue reads, its own log first."""
        return [self.id, *self.bindings]

    def unnumbered(self, topic_id: bytes) -> int:
        """The number before that of the first delivery of a topic's record."""
        return self.unbound.get(topic_id, 0) * DELIVERIES_APART

    def source(self, key: Key) -> Source:
        """The source of a partition; a new one begins where the binding says."""
        found = self.sources.get(key)
        if found is None:
            found = self.sources[key] = self._peek(key)
        return found

    # --- looking ------------------------------------------------------------------------

    def _peek(self, key: Key) -> Source:
        """As `source`, but a new source is not kept: reading must not change the state."""
        found = self.sources.get(key)
        if found is None:
            binding = self.bindings.get(key[0])
            start = 0 if binding is None else binding.start(key[1])
            looked, unnumbered = self.settings.order == "key", self.unnumbered(key[0])
            found = Source(start, looked=looked, unnumbered=unnumbered)
        return found

    def looks(self, key: Key) -> bool:
        """Whether a receiver must look at records of a partition before they are delivered."""
        return self.settings.order == "key" or self.has_filter(key)

    def has_filter(self, key: Key) -> bool:
        """Whether a filter holds for records of a partition that were not looked at yet."""
        binding = self.bindings.get(key[0])
        if binding is None or not binding.has_filters:
            return False
        return binding.filters_from(key[1], self._peek(key).next)

    def filter_at(self, key: Key, offset: int) -> tuple[str | None, int | None]:
        """The filter at an offset, and the offset where another one begins."""
        binding = self.bindings.get(key[0])
        return (None, None) if binding is None else binding.filter_at(key[1], offset)

    def looked_up_to(self, key: Key) -> int:
        """The first offset of a partition that no receiver looked at."""
        return self._peek(key).next

    def looked_and_due(self, now: int) -> int:
        """How many records that were looked at are due; some may wait for others of their key."""
        sources, most = list(self.sources.items()), self.deliveries_max
        return sum(each.looked_and_due(now, most) for key, each in sources if self.looks(key))

    def without_rows(self, key: Key, offsets: Numbers) -> Numbers:
        """Those of a partition's offsets that have no row."""
        rows = self._peek(key).rows
        return np.setdiff1d(offsets, rows.offsets(0, NEVER)) if rows else offsets

    def next_after(self, now: int) -> int:
        """The earliest time after `now` at which a record becomes deliverable, UTC us."""
        sources = list(self.sources.values())
        return min((source.rows.next_after(now) for source in sources), default=NEVER)

    def take(
        self,
        spans: Spans,
        most: int,
        now: int,
        *,
        each_once: bool = False,
        busy: Busy | None = None,
    ) -> list[Run]:
        """What can be delivered now: by priority, then in order; if `each_once`, one of a key.

        `busy`: what `busy` returned, unless that is to be worked out.
        """
        runs: list[Run] = []
        keys = self.in_turn(spans)
        busy = self.busy(now, each_once=each_once) if busy is None else busy
        if self.settings.order == "strict" and busy:
            return []
        keyed = None if self.settings.order != "key" else busy
        for priority in self._priorities():
            for key in keys:
                if most <= 0:
                    return runs
                source = self._peek(key)
                if not source.rows and source.next >= spans[key][1]:
                    continue  # quickly passes over finished partitions, which most are
                wish = Wish(most, now, self.deliveries_max, priority, self.looks(key), keyed)
                found = source.take(key, spans[key], wish)
                runs += found
                most -= sum(run.rows for run in found)
        return runs

    def in_turn(self, spans: Spans) -> list[Key]:
        """The partitions in the order in which they have their turn now."""
        keys, first = list(spans), self.turns % max(len(spans), 1)
        return keys[first:] + keys[:first]

    def busy(self, now: int, *, each_once: bool = False) -> Busy | None:
        """The keys of records that block later records; None if none ever does."""
        if self.settings.order == "none":
            return None
        sources, most = list(self.sources.values()), self.deliveries_max
        keys = (keys for each in sources for keys in each.rows.busy(now, most))
        return Busy(keys, each_once=each_once)

    def _priorities(self) -> list[int]:
        own = self.sources.get(self.log_key)
        more = own.rows.priorities if own else ()
        return sorted({PRIORITY, *more}, reverse=True) if more else [PRIORITY]

    def unfinished(self, key: Key, end: int, now: int, entering: Numbers | None) -> Array:
        """A row for each unfinished record; `entering` are the unlooked ones a filter lets in."""
        source = self._peek(key)
        return source.unfinished(source.unseen_offsets(end) if entering is None else entering, now)

    def done_below(self, key: Key, end: int) -> int:
        """The offset below which all records of a partition are finished."""
        return self._peek(key).done_below(end)

    def free_in(self, key: Key, start: int, end: int, now: int) -> list[Run]:
        """The unfinished, unlocked records in [start, end), as `Source.free_in` finds them."""
        return self._peek(key).free_in(key, start, end, now)

    def exhausted(self, now: int) -> list[Run]:
        """Unlocked records that had all their deliveries."""
        return [
            run
            for key, source in list(self.sources.items())
            for run in source.exhausted(key, now, self.deliveries_max)
        ]

    def held(self, spans: Spans, now: int) -> int:
        """The number of unfinished records, without expired ones."""
        return sum(self._peek(key).held(end, now) for key, (_, end) in spans.items())

    def has_expired(self, now: int) -> bool:
        """Whether there are unlocked expired records."""
        return any(len(source.rows.expired(now)) for source in list(self.sources.values()))

    def stats(self, spans: Spans, now: int, entering: Mapping[Key, Numbers]) -> QueueStats:
        """Statistics at a time (UTC us).

        `entering`: for partitions with a filter, the offsets it lets in of records that were not
        looked at yet.
        """
        tally = {"ready": 0, "locked": 0, "delayed": 0, "expired": self.expired}
        for key, (_, end) in spans.items():
            source = self._peek(key)
            counts = tallied(source.rows.all(), now)
            counts["ready"] += len(entering[key]) if key in entering else source.unseen(end)
            tally = {name: tally[name] + counts[name] for name in tally}
        return QueueStats(**tally, delivered=self.delivered, acked=self.acked, dead=self.dead)

    def ended_slips(self, now: int) -> list[tuple[bytes, Slip]]:
        """The slips whose locks ended, and whose notes are not committed yet."""
        return [(each, slip) for each, slip in list(self.slips.items()) if slip.until <= now]

    # --- checking -----------------------------------------------------------------------

    def check_slips(self, now: int) -> None:
        """ConflictError while there are slips whose locks ended: their notes must come first."""
        if self.slips and self.ended_slips(now):
            raise ConflictError(
                f"queue {self.name}: what a receiver noted has to be committed first",
                queue=self.name,
            )

    def check_slip(self, entry: SlipAnswerEntry) -> None:
        """ConflictError unless the entry may end this use of the slip."""
        slip = self.slips.get(entry.slip_id)
        taken = entry.by == TAKEN_OVER
        if slip is None or (slip.round, slip.taken) != (entry.round, taken):
            raise ConflictError(
                f"queue {self.name}: somebody else commits what is noted on slip "
                f"{entry.slip_id.hex()}",
                queue=self.name,
            )

    def check_answer(self, entry: AnswerEntry, name_of: NameOf) -> None:
        """LeaseExpiredError unless the deliveries that the entry names still hold all records.

        An answer for exhausted or recalled records needs them unlocked instead: ConflictError if
        they are not.
        """
        if entry.answer == EXHAUSTED:
            self.check_slips(entry.time)
        if entry.answer in (EXHAUSTED, RECALL):
            for run in entry.runs:
                is_read = run.topic_id in self.topic_ids()
                if not (is_read and self._peek(run.key).are_free(run, entry.time)):
                    what = "somebody has these records by now, or the topic was unbound"
                    raise ConflictError(f"queue {self.name}: {what}", queue=self.name)
            return
        late = [each for run in entry.runs for each in self._late_of(run, entry.time)]
        if late:
            raise too_late(self.name, late, name_of)

    def _late_of(self, run: Run, now: int) -> Iterable[Run]:
        source = self.sources.get(run.key)
        if source is None:
            return (run,)
        return () if source.are_held(run, now) else source.late_of(run, now)

    # --- applying -----------------------------------------------------------------------

    def apply_schedule(self, base: int, schedules: Sequence[Schedule]) -> None:
        """Set delays, expiries and priorities of new records in the queue's own log."""
        rows = new_rows(np.array([base + each.row for each in schedules], np.int64))
        rows["at"] = [each.at for each in schedules]
        rows["expires"] = [each.expires for each in schedules]
        rows["priority"] = [each.priority for each in schedules]
        rows["state"] = FREE
        self.source(self.log_key).put(rows)

    def apply_look(self, entry: LookEntry) -> None:
        """Apply a receiver's look at records of a partition."""
        self.source((entry.topic_id, entry.partition)).look(entry)

    def apply_acquire(self, entry: AcquireEntry) -> None:
        """Lock records for a receiver, and remove records that have expired by then."""
        for source in self.sources.values():
            self.expired += source.drop_expired(entry.time)
        for key, runs in by_partition(entry.runs):
            self.source(key).lock(runs, entry.until)
        self.delivered += sum(run.rows for run in entry.runs)
        self.turns += 1
        if isinstance(entry, SlipAcquireEntry):
            boot = entry.boot if isinstance(entry, SealedSlipAcquireEntry) else None
            slip = Slip(entry.round, entry.until, entry.runs, boot=boot)
            self.slips[entry.slip_id] = slip

    def apply_slip(self, entry: SlipAnswerEntry) -> None:
        """Finish the records noted on a slip, except those that were answered in another way."""
        slip = self.slips.pop(entry.slip_id, None)
        if entry.by == TAKING_OVER and slip is not None:
            self.slips[entry.slip_id] = replace(slip, taken=True)
        for run in entry.runs:
            source = self.sources.get(run.key)
            if source is not None:
                self.acked += sum(source.finish(held) for held in source.held_of(run))

    def apply_answer(self, entry: AnswerEntry) -> None:
        """Apply an answer to records."""
        for run in entry.runs:
            source = self.source(run.key)
            if entry.answer == ACK:
                self.acked += source.finish(run)
            elif entry.answer in (DEAD, EXHAUSTED):
                self.dead += source.finish(run)
            elif entry.answer == RETRY:
                source.wait(run, entry.at)
            elif entry.answer == EXTEND:
                source.extend(run, entry.at)
            elif entry.answer == RELEASE:
                source.release(run)
                self.delivered -= run.rows
            elif entry.answer == RECALL:
                source.recall(run)
            else:
                raise FormatVersionError(
                    f"queue {self.name} has an answer {entry.answer}, which this version of kmq "
                    "does not know; read the store with a newer kmq",
                    queue=self.name,
                )

    def bind(self, topic_id: bytes, starts: tuple[int, ...], expression: str | None) -> None:
        """Read a topic from these offsets on; one that is read, with another filter from there."""
        self.bindings[topic_id] = self.bindings.get(topic_id, Binding(())).changed(
            starts, expression, lambda partition: self.looked_up_to((topic_id, partition))
        )
        for key, rows in self.left.taken(topic_id):
            source = self.source(key)
            read = rows["offset"] >= source.next
            source.rows.put(rows[read])
            self.left.keep(key, rows[~read])

    def unbind(self, topic_id: bytes) -> None:
        """Stop reading a topic, and forget its records.

        Unfinished records that receivers got are kept: if the topic is bound again, a second
        receiver must not get a record that is still locked. Finished records are then delivered
        again. Their delivery numbers are new, so that an old answer does not count for them.
        """
        self.unbound[topic_id] = self.unbound.get(topic_id, 0) + 1
        self.bindings.pop(topic_id, None)
        for key in [key for key in self.sources if key[0] == topic_id]:
            self.left.keep(key, self.sources.pop(key).rows.all())

    def forget_topic(self, topic_id: bytes) -> None:
        """Drop a deleted topic."""
        self.unbind(topic_id)
        self.left.taken(topic_id)
        self.unbound.pop(topic_id, None)

    def trim(self, key: Key, start: int) -> None:
        """Drop the records of a partition before its new start."""
        self.left.trim(key, start)
        if key[0] in self.topic_ids():
            self.source(key).trim(start)
