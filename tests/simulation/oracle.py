"""What must hold, kept outside of the simulated store: who was told what, and who saw what."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.objects.disk import Disk

#: Topic, partition, offset.
Place = tuple[str, int, int]


@dataclass
class Oracle:
    """Promises and observations; every check raises AssertionError."""

    #: What a durable reader saw or a writer was told after a sync: it must stay there.
    durable: dict[Place, bytes] = field(default_factory=dict)
    #: How many records each commit has over all partitions, by its tag.
    sizes: dict[bytes, int] = field(default_factory=dict)
    #: Values that somebody was told are on disk.
    acknowledged: set[bytes] = field(default_factory=set)
    history: list[str] = field(default_factory=list)

    def acknowledge(self, values: list[bytes], lsn: int) -> None:
        """A sync of the commit with these values returned."""
        self.acknowledged.update(values)
        self.history.append(f"acknowledged {values[0].decode()} at {lsn}")

    def confirm(self, place: Place, value: bytes) -> None:
        """A durable reader saw this value here."""
        known = self.durable.setdefault(place, value)
        assert known == value, f"{place} was {known!r} and is {value!r} now"

    def check_all(self, seen: dict[Place, bytes], lsn: int) -> None:
        """The end: everything acknowledged is there once, nothing that was seen has gone."""
        for place, value in self.durable.items():
            assert seen.get(place) == value, f"{place} had {value!r}, now {seen.get(place)!r}"
        counted = Counter(seen.values())
        doubled = [value for value, count in counted.items() if count > 1]
        assert not doubled, f"stored twice: {doubled[:3]}"
        lost = sorted(self.acknowledged - set(counted))
        assert not lost, f"acknowledged and lost: {lost[:3]} of {len(lost)}"
        self.history.append(f"end at {lsn}: {sorted((p, v[:24]) for p, v in seen.items())}")


class Follower:
    """One reader: reads what is new in each state, and checks it."""

    def __init__(self, oracle: Oracle, disk: Disk) -> None:
        self._oracle = oracle
        self._reader = ChunkReader(disk)
        self._next: dict[tuple[str, int], int] = defaultdict(int)
        self._counts: Counter[bytes] = Counter()
        self.seen: dict[Place, bytes] = {}
        self.lsn = 0

    def follow(self, state: StoreState) -> None:
        """Check a state against what was seen before: a longer prefix of the same log."""
        assert not state.damage, state.damage
        assert state.broken is None, state.broken
        assert state.lsn >= self.lsn, "a durable reader never goes back"
        self.lsn = state.lsn
        touched: set[bytes] = set()
        for topic in state.topics.values():
            for partition in range(topic.partitions):
                touched |= self._read(topic, partition)
        for tag in sorted(touched):
            assert self._counts[tag] == self._oracle.sizes[tag], f"commit {tag!r} in part"
        self._check_groups(state)

    def _read(self, topic: Topic, partition: int) -> set[bytes]:
        position = self._next[topic.name, partition]
        end = topic.partition(partition).end
        tags = set()
        for chunk in topic.places(partition, position, end):
            assert chunk.base_offset == position, "offsets are dense"
            batch = self._reader.read(chunk, chunk.base_offset, chunk.end_offset)
            for value in batch.column("value").to_pylist():
                self._oracle.confirm((topic.name, partition, position), value)
                self.seen[topic.name, partition, position] = value
                tags.add(value.split(b"/")[0])
                self._counts[value.split(b"/")[0]] += 1
                position += 1
        assert position == end, "every offset below the end has a record"
        self._next[topic.name, partition] = position
        return tags

    def _check_groups(self, state: StoreState) -> None:
        for group in state.groups.values():
            for topic_id, offsets in group.offsets.items():
                topic = state.topic_by_id(topic_id)
                assert topic is not None
                for partition, offset in offsets.items():
                    assert offset <= topic.partition(partition).end, "a group is beyond the end"
