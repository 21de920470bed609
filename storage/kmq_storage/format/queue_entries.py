"""Entries of queues: their definitions and bindings, deliveries of records, and answers.

Definitions and bindings are rare, so they are JSON. Entries for single records are binary. A
delivery has a number, which an answer names to prove that its receiver still holds the record. No
two deliveries of a record have the same number, even if its topic was unbound and bound again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from kmq_storage.format.json_bytes import compact_json
from kmq_storage.format.schedule_entry import ScheduleEntry

#: Answers: done; retry at a time; extend the lock until a time; moved to the dead letters by the
#: receiver, or because all deliveries ended without an answer; released, as if never delivered;
#: recalled by the sender before any delivery, or lost.
ACK, RETRY, EXTEND, DEAD, EXHAUSTED, RELEASE, RECALL = range(1, 8)


class Run(NamedTuple):
    """Consecutive records of one partition with the same delivery number."""

    topic_id: bytes
    partition: int
    first: int
    rows: int
    #: The number of their delivery (`delivery_numbers`): the count of deliveries, and how often the
    #: topic had been unbound at the first one; 0 before any.
    delivery: int

    @property
    def key(self) -> tuple[bytes, int]:
        """Their partition, as a `Key` of the manifest."""
        return self.topic_id, self.partition

    @property
    def end(self) -> int:
        """The offset behind the last of them."""
        return self.first + self.rows


_RUN = struct.Struct("<16sIIQQ")
#: The most records of a run, as an entry has it.
RUN_ROWS_MAX = 2**32 - 1


def _runs_payload(runs: Sequence[Run]) -> bytes:
    return b"".join(
        [
            _RUN.pack(topic_id, partition, rows, first, delivery)
            for topic_id, partition, first, rows, delivery in runs
        ]
    )


def _parse_runs(payload: bytes, start: int, count: int) -> tuple[Run, ...]:
    found = _RUN.iter_unpack(payload[start : start + count * _RUN.size])
    return tuple(
        Run(topic_id, partition, first, rows, delivery)
        for topic_id, partition, rows, first, delivery in found
    )


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A queue is created or deleted; its own log is a topic with the same id, created with it."""

    queue_id: bytes
    name: str
    #: None deletes the queue.
    settings: Mapping[str, Any] | None

    kind = 14

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        settings = None if self.settings is None else dict(self.settings)
        return compact_json({"id": self.queue_id.hex(), "name": self.name, "settings": settings})

    @classmethod
    def parse(cls, payload: bytes) -> QueueEntry:
        """The entry from its JSON form."""
        facts = json.loads(payload)
        return cls(bytes.fromhex(facts["id"]), facts["name"], facts["settings"])


@dataclass(frozen=True, slots=True)
class BindEntry:
    """A queue is bound to a topic, or unbound, or gets another filter from some offsets on."""

    queue_id: bytes
    topic_id: bytes
    #: The first offsets by partition; later partitions are read from their beginning. None unbinds.
    #: Before the commit is bound, it may be a word, `earliest` or `latest`.
    starts: tuple[int, ...] | str | None
    #: An expression on properties; a record that it refuses never enters the queue.
    filter: str | None = None

    kind = 15

    def bound(self, starts: tuple[int, ...]) -> BindEntry:
        """The entry with offsets in place of a word."""
        return replace(self, starts=starts)

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        assert not isinstance(self.starts, str), "bound"
        starts = None if self.starts is None else list(self.starts)
        ids = {"queue": self.queue_id.hex(), "topic": self.topic_id.hex()}
        return compact_json({**ids, "starts": starts, "filter": self.filter})

    @classmethod
    def parse(cls, payload: bytes) -> BindEntry:
        """The entry of a JSON form."""
        facts = json.loads(payload)
        starts = facts["starts"]
        ids = bytes.fromhex(facts["queue"]), bytes.fromhex(facts["topic"])
        return cls(*ids, None if starts is None else tuple(starts), facts["filter"])


@dataclass(frozen=True, slots=True)
class AcquireEntry:
    """Records are delivered to a receiver, which locks them until a time (UTC us)."""

    queue_id: bytes
    #: The time (UTC us) that decides which locks ended, and which records are due or expired.
    time: int
    until: int
    #: The most records that the receiver wants.
    most: int
    #: The receiver, for people.
    client: str
    #: The delivered records; set when the commit is bound.
    runs: tuple[Run, ...] = ()

    kind = 16
    _layout = struct.Struct("<16sqqIIHxxxxxx")

    def bound(self, time: int, runs: tuple[Run, ...]) -> AcquireEntry:
        """The entry with the delivered records, as of a time."""
        late = time - self.time  # so that the lock keeps its length
        return replace(self, time=time, until=self.until + late, runs=runs)

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        name = self.client.encode()
        count = len(self.runs)
        head = self._layout.pack(self.queue_id, self.time, self.until, self.most, count, len(name))
        return head + _runs_payload(self.runs) + name

    @classmethod
    def parse(cls, payload: bytes) -> AcquireEntry:
        """The entry of a binary form."""
        queue_id, time, until, most, count, length = cls._layout.unpack_from(payload)
        end = cls._layout.size + count * _RUN.size
        runs = _parse_runs(payload, cls._layout.size, count)
        return cls(queue_id, time, until, most, payload[end : end + length].decode(), runs)


@dataclass(frozen=True, slots=True)
class AnswerEntry:
    """An answer for records, by their receiver or, if unlocked, by another process."""

    queue_id: bytes
    #: `ACK` or one of the others.
    answer: int
    #: The time (UTC us) that decides which locks ended.
    time: int
    #: The end of an extended lock, or the time of a retry (UTC us); 0 for other answers.
    at: int
    runs: tuple[Run, ...]
    #: Why, for people: why the records are to be tried again, or were finished though they were not
    #: there any more; empty when nobody said so.
    reason: str = field(default="", kw_only=True)

    kind = 17
    _layout = struct.Struct("<16sqqHxxI")

    def bound(self, time: int) -> AnswerEntry:
        """The entry as of a time."""
        return self if time == self.time else replace(self, time=time)

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        facts = (self.queue_id, self.time, self.at, self.answer, len(self.runs))
        # The reason comes last, where older versions, which know none, don't look.
        return self._layout.pack(*facts) + _runs_payload(self.runs) + self.reason.encode()

    @classmethod
    def parse(cls, payload: bytes) -> AnswerEntry:
        """The entry of a binary form."""
        queue_id, time, at, answer, count = cls._layout.unpack_from(payload)
        runs = _parse_runs(payload, cls._layout.size, count)
        reason = payload[cls._layout.size + count * _RUN.size :].decode()
        return cls(queue_id, answer, time, at, runs, reason=reason)


@dataclass(frozen=True, slots=True)
class SlipAcquireEntry(AcquireEntry):
    """Records are delivered to a receiver that notes on its slip which of them are done.

    The notes count even before they are committed. So another receiver gets none of these records
    before a commit tells what was noted (SlipAnswerEntry).
    """

    slip_id: bytes = b""
    #: The number of this use of the slip, as slips are reused.
    round: int = 0

    kind = 21
    _slip = struct.Struct("<16sQ")

    def payload(self) -> bytes:
        """The binary form: the slip, then the form of an `AcquireEntry`."""
        return self._slip.pack(*self._noted_on()) + super(SlipAcquireEntry, self).payload()

    def _noted_on(self) -> tuple[bytes | int, ...]:
        return self.slip_id, self.round

    @classmethod
    def parse(cls, payload: bytes) -> SlipAcquireEntry:
        """The entry of a binary form."""
        base = AcquireEntry.parse(payload[cls._slip.size :])
        facts = (base.queue_id, base.time, base.until, base.most, base.client, base.runs)
        return cls(*facts, *cls._slip.unpack_from(payload))


@dataclass(frozen=True, slots=True)
class SealedSlipAcquireEntry(SlipAcquireEntry):
    """The same for a slip whose words have check bits."""

    #: The boot of the machine in which the words are written.
    boot: int = 0

    kind = 25
    _slip = struct.Struct("<16sQQ")

    def _noted_on(self) -> tuple[bytes | int, ...]:
        return self.slip_id, self.round, self.boot


#: Who commits the notes of a slip: its receiver; a process that begins to take it over after the
#: lock ended; and this process when it has.
BY_OWNER, TAKING_OVER, TAKEN_OVER = range(3)


@dataclass(frozen=True, slots=True)
class SlipAnswerEntry(AnswerEntry):
    """These records were noted as done on a slip; this ends its use."""

    slip_id: bytes = b""
    round: int = 0
    #: `TAKING_OVER` does not end the use, but the receiver can't end it any more.
    by: int = BY_OWNER

    kind = 22
    _slip = struct.Struct("<16sQBxxxxxxx")

    def payload(self) -> bytes:
        """The binary form: the slip, then the form of an `AnswerEntry`."""
        slip = self._slip.pack(self.slip_id, self.round, self.by)
        return slip + super(SlipAnswerEntry, self).payload()

    @classmethod
    def parse(cls, payload: bytes) -> SlipAnswerEntry:
        """The entry of a binary form."""
        base = AnswerEntry.parse(payload[cls._slip.size :])
        facts = (base.queue_id, base.answer, base.time, base.at, base.runs)
        return cls(*facts, *cls._slip.unpack_from(payload))


@dataclass(frozen=True, slots=True)
class LookEntry:
    """A receiver looked at records: which of them enter the queue, and with which keys.

    If a queue has a filter or is ordered by key, only records that were looked at are delivered.
    """

    queue_id: bytes
    topic_id: bytes
    partition: int
    #: The first offset that was not looked at before, and the offset behind the last.
    start: int
    end: int
    #: The records that enter, as (first offset, count).
    entered: tuple[tuple[int, int], ...]
    #: The ordering key of each, 0 for none; empty if the queue is not ordered by key.
    keys: tuple[int, ...] = ()
    #: How often the topic had been unbound at the look; only known until the commit is bound.
    unbound: int = 0

    kind = 19
    _layout = struct.Struct("<16s16sIIQQ")
    _span = struct.Struct("<QQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        place = (self.queue_id, self.topic_id, self.partition, len(self.entered))
        spans = b"".join([self._span.pack(*each) for each in self.entered])
        keys = struct.pack(f"<{len(self.keys)}Q", *self.keys)
        return self._layout.pack(*place, self.start, self.end) + spans + keys

    @classmethod
    def parse(cls, payload: bytes) -> LookEntry:
        """The entry of a binary form."""
        queue_id, topic_id, partition, count, start, end = cls._layout.unpack_from(payload)
        behind = cls._layout.size + count * cls._span.size
        spans = tuple(cls._span.iter_unpack(payload[cls._layout.size : behind]))
        keys = struct.unpack(f"<{(len(payload) - behind) // 8}Q", payload[behind:])
        return cls(queue_id, topic_id, partition, start, end, spans, keys)


@dataclass(frozen=True, slots=True)
class QueueStateEntry:
    """The state of a queue in another store, which replaces an earlier copy of it."""

    #: Definition, bindings and positions, and the unfinished records, as in a checkpoint's root
    #: (`log.state.queues.snapshot`).
    facts: Mapping[str, Any]
    rows: str
    #: `Queue.turns` of the copy that it replaces; None if there is none.
    replaces: int | None

    kind = 24

    @property
    def queue_id(self) -> bytes:
        """The id of the queue, and of its own log."""
        return bytes.fromhex(self.facts["id"])

    @property
    def name(self) -> str:
        """The name of the queue."""
        return str(self.facts["name"])

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        return compact_json(
            {"queue": dict(self.facts), "rows": self.rows, "replaces": self.replaces}
        )

    @classmethod
    def parse(cls, payload: bytes) -> QueueStateEntry:
        """The entry of a JSON form."""
        members = json.loads(payload)
        return cls(members["queue"], members["rows"], members["replaces"])


QueueChange: TypeAlias = (
    QueueEntry
    | QueueStateEntry
    | BindEntry
    | AcquireEntry
    | AnswerEntry
    | ScheduleEntry
    | LookEntry
    | SlipAcquireEntry
    | SealedSlipAcquireEntry
    | SlipAnswerEntry
)
