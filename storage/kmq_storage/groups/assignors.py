"""Assignors: which member of a group reads which partition, as pure functions.

`range` and `roundrobin` give what Kafka's assignors of these names give for the same members in
the same order; `sticky` is as even as they are and leaves partitions where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

#: A partition by its topic's name and its number.
Spot = tuple[str, int]
#: The members' epochs in order, with the topics that each member reads.
Readers = Mapping[int, frozenset[str]]
#: The partitions to assign, by topic.
Shared = Mapping[str, Sequence[int]]
Assignment = dict[Spot, int]
Assignor = Callable[[Readers, Shared, Mapping[Spot, int]], Assignment]


def assign_range(readers: Readers, shared: Shared, before: Mapping[Spot, int]) -> Assignment:
    """Assign ranges: each topic is cut into one range per reader, the longer ones first."""
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
    """Assign partitions to the members in turn; a member that does not read a topic is skipped."""
    found: Assignment = {}
    order, turn = list(readers), 0
    for topic, number in _spots(readers, shared):
        while topic not in readers[order[turn % len(order)]]:
            turn += 1
        found[topic, number] = order[turn % len(order)]
        turn += 1
    return found


def assign_sticky(readers: Readers, shared: Shared, before: Mapping[Spot, int]) -> Assignment:
    """Assign evenly, and keep partitions where they were.

    In the result, no reader of a partition's topic has two partitions fewer than its owner. If all
    members read the same topics, as few partitions move as possible. Else it may be one or two
    more, as each move is chosen by itself.
    """
    loads = _Loads(readers)
    homeless: list[Spot] = []
    for spot in _spots(readers, shared):
        epoch = before.get(spot, 0)
        if spot[0] in readers.get(epoch, ()):
            loads.put(spot, epoch)
        else:
            homeless.append(spot)
    # Partitions with few readers come first, so that the others can even out the loads.
    homeless.sort(key=lambda spot: loads.choice(spot[0]))
    for spot in homeless:
        loads.put(spot, loads.least(spot[0]))
    while move := loads.next_move():
        loads.put(*move)
    return loads.placed


class _Loads:
    """The partitions of each member so far."""

    def __init__(self, readers: Readers) -> None:
        self.placed: Assignment = {}
        #: Per member and topic, in the order of assignment.
        self._spots: dict[int, dict[str, dict[Spot, None]]] = {epoch: {} for epoch in readers}
        self._counts = dict.fromkeys(readers, 0)
        topics = set().union(*readers.values())
        self._readers = {t: [e for e, wanted in readers.items() if t in wanted] for t in topics}

    def put(self, spot: Spot, epoch: int) -> None:
        """Assign a partition to a member."""
        former = self.placed.get(spot)
        if former is not None:
            self._counts[former] -= 1
            del self._spots[former][spot[0]][spot]
        self.placed[spot] = epoch
        self._counts[epoch] += 1
        self._spots[epoch].setdefault(spot[0], {})[spot] = None

    def choice(self, topic: str) -> int:
        """The number of members that read a topic."""
        return len(self._readers[topic])

    def least(self, topic: str) -> int:
        """The first reader of a topic among those with the fewest partitions."""
        return min(self._readers[topic], key=self._counts.__getitem__)

    def next_move(self) -> tuple[Spot, int] | None:
        """A partition to move, and the member that should get it; None when all is even."""
        for epoch in sorted(self._counts, key=self._counts.__getitem__, reverse=True):
            for topic, spots in self._spots[epoch].items():
                if spots and self._counts[epoch] - self._counts[self.least(topic)] > 1:
                    return next(reversed(spots)), self.least(topic)
        return None


def _spots(readers: Readers, shared: Shared) -> Iterable[Spot]:
    """The partitions with readers, sorted by topic and number."""
    read = frozenset().union(*readers.values())
    return [(topic, n) for topic in sorted(read & set(shared)) for n in sorted(shared[topic])]


ASSIGNORS: Mapping[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
}
