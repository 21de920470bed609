"""Assignors: which member of a group reads which partition, as pure functions.

`range` and `roundrobin` give what Kafka's assignors of these names give for the same members in
the same order; `sticky` is as even as they are and moves only what it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

#: A partition by its topic's name and its number.
Spot = tuple[str, int]
#: The members in order, each by its epoch, with the topics that it reads.
Readers = Mapping[int, frozenset[str]]
#: The partitions that are to be shared, by topic.
Shared = Mapping[str, Sequence[int]]
Assignment = dict[Spot, int]
Assignor = Callable[[Readers, Shared, Mapping[Spot, int]], Assignment]


def assign_range(readers: Readers, shared: Shared, before: Mapping[Spot, int]) -> Assignment:
    """Runs of neighbours: each topic is cut into as many as it has readers, longer ones first."""
    found: Assignment = {}
    for topic, numbers in shared.items():
        own = [epoch for epoch, topics in readers.items() if topic in topics]
        if not own:
            continue
        each, extra = divmod(len(numbers), len(own))
        lengths = [each + (place < extra) for place in range(len(own))]
        epochs = chain.from_iterable([epoch] * n for epoch, n in zip(own, lengths, strict=True))
        found.update({(topic, n): epoch for n, epoch in zip(sorted(numbers), epochs, strict=True)})
    return found


def assign_round_robin(readers: Readers, shared: Shared, before: Mapping[Spot, int]) -> Assignment:
    """One partition after the other to the members in turn; who doesn't read it is passed over."""
    found: Assignment = {}
    order, turn = list(readers), 0
    for topic, number in _spots(readers, shared):
        while topic not in readers[order[turn % len(order)]]:
            turn += 1
        found[topic, number] = order[turn % len(order)]
        turn += 1
    return found


def assign_sticky(readers: Readers, shared: Shared, before: Mapping[Spot, int]) -> Assignment:
    """As even as can be, and as much as can be stays where it was.

    No partition could go to a reader of its topic that has two fewer than the one that has it.
    """
    loads = _Loads(readers)
    homeless: list[Spot] = []
    for spot in _spots(readers, shared):
        epoch = before.get(spot, 0)
        if spot[0] in readers.get(epoch, ()):
            loads.put(spot, epoch)
        else:
            homeless.append(spot)
    # Those that few can read come first: the others can still even it out.
    homeless.sort(key=lambda spot: loads.choice(spot[0]))
    for spot in homeless:
        loads.put(spot, loads.least(spot[0]))
    while move := loads.next_move():
        loads.put(*move)
    return loads.placed


class _Loads:
    """Who has which partitions so far."""

    def __init__(self, readers: Readers) -> None:
        self.placed: Assignment = {}
        #: Per member and topic, in the order in which they came.
        self._spots: dict[int, dict[str, dict[Spot, None]]] = {epoch: {} for epoch in readers}
        self._counts = dict.fromkeys(readers, 0)
        topics = set().union(*readers.values())
        self._readers = {t: [e for e, wanted in readers.items() if t in wanted] for t in topics}

    def put(self, spot: Spot, epoch: int) -> None:
        """A partition is this member's now."""
        former = self.placed.get(spot)
        if former is not None:
            self._counts[former] -= 1
            del self._spots[former][spot[0]][spot]
        self.placed[spot] = epoch
        self._counts[epoch] += 1
        self._spots[epoch].setdefault(spot[0], {})[spot] = None

    def choice(self, topic: str) -> int:
        """How many members read a topic."""
        return len(self._readers[topic])

    def least(self, topic: str) -> int:
        """The first of those readers of a topic that have the fewest."""
        return min(self._readers[topic], key=self._counts.__getitem__)

    def next_move(self) -> tuple[Spot, int] | None:
        """A partition of one who has many, and who should have it; None when all is even."""
        for epoch in sorted(self._counts, key=self._counts.__getitem__, reverse=True):
            for topic, spots in self._spots[epoch].items():
                if spots and self._counts[epoch] - self._counts[self.least(topic)] > 1:
                    return next(reversed(spots)), self.least(topic)
        return None


def _spots(readers: Readers, shared: Shared) -> Iterable[Spot]:
    """The partitions that somebody reads, by topic and number."""
    read = frozenset().union(*readers.values())
    return [(topic, n) for topic in sorted(read & set(shared)) for n in sorted(shared[topic])]


ASSIGNORS: Mapping[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
}
