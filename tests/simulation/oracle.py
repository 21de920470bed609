"""What must hold, kept outside of the simulated store: who was told what, and who saw what.

Every record has an identity that is its timestamp, so that one without a value has one, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

#: Topic and partition.
Part = tuple[str, int]
#: Topic, partition, offset.
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Record:
    """What a producer sent."""

    identity: int
    key: bytes | None
    value: bytes | None
    #: By the simulation's clock.
    created: float


@dataclass(frozen=True)
class Attempt:
    """A commit that was about to be written: which offsets it gave out."""

    ends: Mapping[Part, int]


@dataclass
class Oracle:
    """Promises and observations; every check raises AssertionError."""

    clock: Callable[[], float]
    compacted: frozenset[str] = frozenset()
    #: Seconds after which a record without a value may go.
    tombstone_delay: float = 0.0
    records: dict[int, Record] = field(default_factory=dict)
    #: Who was ever about to stand at a place: several, when a write was lost.
    written: dict[Place, dict[int, Attempt]] = field(default_factory=lambda: defaultdict(dict))
    #: What a durable reader saw or a writer was told after a sync: it must stay there.
    durable: dict[Place, int] = field(default_factory=dict)
    _places: dict[int, Place] = field(default_factory=dict)
    #: By LSN, the first record of the commit that was acknowledged under it.
    _winners: dict[int, int] = field(default_factory=dict)
    #: The highest start that somebody was about to commit; those that a durable reader saw.
    trims: dict[Part, int] = field(default_factory=lambda: defaultdict(int))
    starts: dict[Part, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: int = 0
    history: list[str] = field(default_factory=list)

    def send(self, key: bytes | None, value: bytes | None) -> Record:
        """A record that a producer is about to send."""
        record = Record(1_000_000 + len(self.records), key, value, self.clock())
        self.records[record.identity] = record
        return record

    def write(self, spans: Mapping[Part, tuple[int, list[Record]]]) -> None:
        """A commit with these records is about to be written at these offsets."""
        attempt = Attempt({part: base + len(mine) for part, (base, mine) in spans.items()})
        for (topic, partition), (base, mine) in spans.items():
            for offset, record in enumerate(mine, base):
                self.written[topic, partition, offset][record.identity] = attempt

    def acknowledge(self, places: Mapping[Place, Record], lsn: int) -> None:
        """A sync of the commit with these records returned."""
        for place, record in places.items():
            self.confirm(place, record.identity)
        self.acknowledged += len(places)
        first = min(record.identity for record in places.values())
        winner = self._winners.setdefault(lsn, first)
        assert winner == first, f"commit {lsn} is that of {winner} and that of {first}"
        self.history.append(f"acknowledged {first} at {lsn}")

    def confirm(self, place: Place, identity: int) -> None:
        """This record is durable, and stands here and nowhere else, as long as it is kept."""
        known = self.durable.setdefault(place, identity)
        assert known == identity, f"{place} was {known} and is {identity} now"
        other = self._places.setdefault(identity, place)
        assert other == place, f"{identity} stands at {other} and at {place}"

    def check_content(
        self, place: Place, identity: int, key: bytes | None, value: bytes | None
    ) -> None:
        """A record that was read is one that was sent, to here."""
        sent = self.records[identity]
        assert (sent.key, sent.value) == (key, value), f"{place} has other bytes than sent"
        assert identity in self.written[place], f"nobody wrote {identity} to {place}"

    def check_whole(self, place: Place, identity: int, ends: Mapping[Part, int]) -> None:
        """All of the commit that a record came with is inside of the log."""
        for part, end in self.written[place][identity].ends.items():
            assert end <= ends[part], f"{place} is there, but its commit's {part} is not"

    def check_start(self, part: Part, start: int, *, durable: bool) -> None:
        """A start that somebody asked for."""
        assert start <= self.trims[part], f"{part} starts at {start}, nobody trimmed it so far"
        if durable:
            self.starts[part] = max(start, self.starts[part])

    def check_expired(self, part: Part, span: tuple[int, int], age: float) -> None:
        """Records that a retention time gives up are at least so old (seconds)."""
        for offset in range(*span):
            young = [r for r in self._candidates((*part, offset)) if self.clock() - r.created < age]
            assert not young, f"{part} gave up {offset} too early"

    def check_missing(self, part: Part, span: tuple[int, int], found: Mapping[int, int]) -> None:
        """Offsets without a record: only those that a newer record of their key superseded."""
        start, end = span
        missing = [offset for offset in range(start, end) if offset not in found]
        if not missing:
            return
        assert part[0] in self.compacted, f"{part} has no record at {missing[:5]} of {span}"
        later = self._keys_from(part, end)
        for offset in range(end - 1, start - 1, -1):
            if offset in found:
                later.add(self.records[found[offset]].key)
                continue
            gone = [r for r in self._candidates((*part, offset)) if self._may_go(r, later)]
            assert gone, f"{part} lost the newest record of its key at {offset}"
            later.update(record.key for record in gone)

    def _keys_from(self, part: Part, end: int) -> set[bytes | None]:
        """The keys of records at or behind an offset: they may supersede what a reader looks at."""
        keys: set[bytes | None] = set()
        offset = end
        while candidates := self._candidates((*part, offset)):
            keys.update(record.key for record in candidates)
            offset += 1
        return keys

    def _candidates(self, place: Place) -> Iterable[Record]:
        known = self.durable.get(place)
        if known is not None:
            return [self.records[known]]
        return [self.records[identity] for identity in self.written.get(place, ())]

    def _may_go(self, record: Record, later: set[bytes | None]) -> bool:
        if record.key is not None and record.key in later:
            return True
        return record.value is None and self.clock() - record.created >= self.tombstone_delay

    def check_all(
        self, seen: Mapping[Part, Mapping[int, int]], starts: Mapping[Part, int], lsn: int
    ) -> None:
        """The end: every durable record is there, unless it was trimmed or compacted away."""
        for part, start in self.starts.items():
            assert starts[part] >= start, f"{part} started at {start}, now at {starts[part]}"
        for (topic, partition, offset), identity in self.durable.items():
            found = seen[topic, partition].get(offset)
            gone = offset < starts[topic, partition] or topic in self.compacted
            assert found == identity or (found is None and gone), (
                f"{topic}-{partition} had {identity} at {offset}, now {found}"
            )
        self.history.append(
            f"end at {lsn}: {sorted((p, sorted(s.items())) for p, s in seen.items())}"
        )

    def digest(self) -> str:
        """The digest of all that happened."""
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()
