"""Entries of queues: what a queue is and reads, who holds which records, and what became of them.

Definitions and bindings are rare, so they are JSON; what happens for each record is binary. Who
holds a record is told by the number of its delivery: an answer names the one that it belongs to.
No two deliveries of a record have one number, also where its topic was unbound and bound again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from kmq_storage.format.json_bytes import compact_json

#: What an answer says of records: they are done; come again at an instant; are held until one;
#: stand in the dead letters, told by who held them, or found where a lock ended too often; were
#: not handed out after all; were taken back before anybody had them, or are not there any more.
ACK, RETRY, EXTEND, DEAD, EXHAUSTED, RELEASE, RECALL = range(1, 8)


class Run(NamedTuple):
    """Records of one partition that follow each other, all in the same delivery."""

    topic_id: bytes
    partition: int
    first: int
    rows: int
    #: How often each was handed out, this time included, and how often the topic had been unbound
    #: when it was for the first time (`delivery_numbers`); 0 for never.
    delivery: int


_RUN = struct.Struct("<16sIIQQ")


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
    """A queue was made or deleted. Its own log is a topic of the same id, made beside it."""

    queue_id: bytes
    name: str
    #: None deletes the queue.
    settings: Mapping[str, Any] | None

    kind = 14

    def payload(self) -> bytes:
        """The JSON form."""
        settings = None if self.settings is None else dict(self.settings)
        return compact_json({"id": self.queue_id.hex(), "name": self.name, "settings": settings})

    @classmethod
    def parse(cls, payload: bytes) -> QueueEntry:
        """The entry of a JSON form."""
        facts = json.loads(payload)
        return cls(bytes.fromhex(facts["id"]), facts["name"], facts["settings"])


@dataclass(frozen=True, slots=True)
class BindEntry:
    """A queue reads a topic from some offsets on, or no more, or with another filter from there."""

    queue_id: bytes
    topic_id: bytes
    #: By partition; those that come later are read from their beginning. None ends it. A word,
    #: `earliest` or `latest`, until the commit is bound.
    starts: tuple[int, ...] | str | None
    #: An expression on properties; what it refuses never enters the queue.
    filter: str | None = None

    kind = 15

    def bound(self, starts: tuple[int, ...]) -> BindEntry:
        """The same with offsets in place of the word."""
        return replace(self, starts=starts)

    def payload(self) -> bytes:
        """The JSON form."""
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
    """A receiver holds records until an instant, or until it answers. Times are UTC us."""

    queue_id: bytes
    #: Which locks ended, which records are due and which expired is judged by this.
    time: int
    until: int
    #: How many records are wanted.
    most: int
    #: Who it is, for people.
    client: str
    #: Those that it got; known when the commit is bound.
    runs: tuple[Run, ...] = ()

    kind = 16
    _layout = struct.Struct("<16sqqIIHxxxxxx")

    def bound(self, time: int, runs: tuple[Run, ...]) -> AcquireEntry:
        """The same with what it got, as of a time."""
        late = time - self.time  # the lock is as long as it was meant to be
        return replace(self, time=time, until=self.until + late, runs=runs)

    def payload(self) -> bytes:
        """The binary form."""
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
    """What became of records that somebody held, or nobody."""

    queue_id: bytes
    #: What is said of them: `ACK` and so on.
    answer: int
    #: Which locks had ended is judged by this, UTC us.
    time: int
    #: Until when they are held, or when they come again (UTC us); 0 where that means nothing.
    at: int
    runs: tuple[Run, ...]

    kind = 17
    _layout = struct.Struct("<16sqqHxxI")

    def bound(self, time: int) -> AnswerEntry:
        """The same as of a time."""
        return self if time == self.time else replace(self, time=time)

    def payload(self) -> bytes:
        """The binary form."""
        facts = (self.queue_id, self.time, self.at, self.answer, len(self.runs))
        return self._layout.pack(*facts) + _runs_payload(self.runs)

    @classmethod
    def parse(cls, payload: bytes) -> AnswerEntry:
        """The entry of a binary form."""
        queue_id, time, at, answer, count = cls._layout.unpack_from(payload)
        return cls(queue_id, answer, time, at, _parse_runs(payload, cls._layout.size, count))


@dataclass(frozen=True, slots=True)
class SlipAcquireEntry(AcquireEntry):
    """A receiver holds records, and notes on a slip of its own which of them are done.

    What is noted there counts, though no commit says so yet: so nobody else gets one of these
    records before a commit says what was noted (SlipAnswerEntry).
    """

    slip_id: bytes = b""
    #: A slip is used again: this is the number of its use.
    round: int = 0

    kind = 21
    _slip = struct.Struct("<16sQ")

    def payload(self) -> bytes:
        """The binary form: the slip, then as without one."""
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
    """The same with a slip whose words prove themselves."""

    #: The start of the machine in which they are written.
    boot: int = 0

    kind = 25
    _slip = struct.Struct("<16sQQ")

    def _noted_on(self) -> tuple[bytes | int, ...]:
        return self.slip_id, self.round, self.boot


#: Who says what is noted on a slip: its receiver; somebody who will do so instead, since the lock
#: ended; and whoever did that.
BY_OWNER, TAKING_OVER, TAKEN_OVER = range(3)


@dataclass(frozen=True, slots=True)
class SlipAnswerEntry(AnswerEntry):
    """These records were noted as done on a slip, of which this use is over."""

    slip_id: bytes = b""
    round: int = 0
    #: With `TAKING_OVER` it goes on, but its receiver can't end it any more.
    by: int = BY_OWNER

    kind = 22
    _slip = struct.Struct("<16sQBxxxxxxx")

    def payload(self) -> bytes:
        """The binary form: the slip, then as without one."""
        slip = self._slip.pack(self.slip_id, self.round, self.by)
        return slip + super(SlipAnswerEntry, self).payload()

    @classmethod
    def parse(cls, payload: bytes) -> SlipAnswerEntry:
        """The entry of a binary form."""
        base = AnswerEntry.parse(payload[cls._slip.size :])
        facts = (base.queue_id, base.answer, base.time, base.at, base.runs)
        return cls(*facts, *cls._slip.unpack_from(payload))


class Schedule(NamedTuple):
    """When a record that was sent to a queue is handed out, and before which others."""

    #: Which of the records of its unit it is, from 0.
    row: int
    #: Not before this, UTC us; 0 for at once.
    at: int
    #: Nor after this, UTC us.
    expires: int
    #: 0 to 9, the highest first.
    priority: int


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """Some of the records that the same unit has for a queue's own log are not like all others."""

    queue_id: bytes
    #: The offset of the first record of the unit; given when the commit is bound.
    base_offset: int
    schedules: tuple[Schedule, ...]

    kind = 18
    _layout = struct.Struct("<16sQ")
    _row = struct.Struct("<IBxxxqq")

    def bound(self, base_offset: int) -> ScheduleEntry:
        """The same with the offset of the first record."""
        return replace(self, base_offset=base_offset)

    def shifted(self, rows: int) -> ScheduleEntry:
        """The same behind so many more records of the unit."""
        return replace(self, schedules=tuple(s._replace(row=s.row + rows) for s in self.schedules))

    def payload(self) -> bytes:
        """The binary form."""
        rows = [
            self._row.pack(row, priority, at, expires)
            for row, at, expires, priority in self.schedules
        ]
        return self._layout.pack(self.queue_id, self.base_offset) + b"".join(rows)

    @classmethod
    def parse(cls, payload: bytes) -> ScheduleEntry:
        """The entry of a binary form."""
        rows = cls._row.iter_unpack(payload[cls._layout.size :])
        schedules = tuple(
            Schedule(row, at, expires, priority) for row, priority, at, expires in rows
        )
        queue_id, base_offset = cls._layout.unpack_from(payload)
        return cls(queue_id, base_offset, schedules)


@dataclass(frozen=True, slots=True)
class LookEntry:
    """Records of a partition were looked at: which of them enter the queue, and with which keys.

    Where a queue has a filter or goes by keys, nobody gets a record that was not looked at.
    """

    queue_id: bytes
    topic_id: bytes
    partition: int
    #: The first offset that nobody looked at before, and the one behind the last.
    start: int
    end: int
    #: Those that enter, as (first offset, how many).
    entered: tuple[tuple[int, int], ...]
    #: What the order of each goes by, 0 for none; empty where nothing does.
    keys: tuple[int, ...] = ()
    #: How often the topic had been unbound when they were looked at; until the commit is bound.
    unbound: int = 0

    kind = 19
    _layout = struct.Struct("<16s16sIIQQ")
    _span = struct.Struct("<QQ")

    def payload(self) -> bytes:
        """The binary form."""
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
    """A queue as it is in another store, in place of the one that was copied from there before."""

    #: Definition, bindings and positions, and the records that are not finished: as in the root
    #: of a checkpoint (`log.queue_snapshot`).
    facts: Mapping[str, Any]
    rows: str
    #: How often something was handed out of the queue that it replaces; None where there is none.
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
        """The JSON form."""
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
