"""What a queue reads of topics, and what it had handed out of those that it reads no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from kmq_storage.arrays import Array
from kmq_storage.format.manifest import Key
from kmq_storage.log.queue_rows import GONE


@dataclass(frozen=True, slots=True)
class Binding:
    """What a queue reads of a topic: from where on, and from where on with which filter."""

    #: By partition; those that came later are read from their beginning.
    periods: tuple[tuple[tuple[int, ...], str | None], ...]

    def changed(
        self, starts: tuple[int, ...], expression: str | None, looked: Callable[[int], int]
    ) -> Binding:
        """With another filter from these offsets on, and none that nobody looks by any more.

        `looked`: up to where a partition's records were looked at. The begin is kept, for who reads
        the topic by positions of his own.
        """
        periods = [*self.periods, (starts, expression)]
        open_still = [
            period
            for period, (ends, _) in pairwise(periods)
            if any(max(looked(p), _at(period[0], p)) < end for p, end in enumerate(ends))
        ]
        runs = groupby([*open_still, periods[-1]], itemgetter(1))
        (_, first), *others = (next(same) for _, same in runs)
        return Binding(((periods[0][0], first), *others))

    def start(self, partition: int) -> int:
        """The first offset that it reads of a partition."""
        return _at(self.periods[0][0], partition)

    def filter_at(self, partition: int, offset: int) -> tuple[str | None, int | None]:
        """The filter that holds at an offset, and where the next one begins."""
        current, following = None, None
        for starts, expression in self.periods:
            if _at(starts, partition) <= offset:
                current = expression
            elif following is None:
                following = _at(starts, partition)
        return current, following

    @property
    def has_filters(self) -> bool:
        """Whether there is a filter at all."""
        return any(expression is not None for _, expression in self.periods)

    def filters_from(self, partition: int, offset: int) -> bool:
        """Whether there is a filter at an offset, or behind it."""
        begins = [max(_at(starts, partition), offset) for starts, _ in self.periods]
        return any(
            expression is not None and (end is None or begin < end)
            for (_, expression), begin, end in zip(
                self.periods, begins, [*begins[1:], None], strict=True
            )
        )


def _at(starts: tuple[int, ...], partition: int) -> int:
    return starts[partition] if partition < len(starts) else 0


@dataclass(slots=True)
class Left:
    """Records that somebody had, and did not finish, of what a queue reads no more of topics.

    Should it read them again, they are held for as long as they were, and their deliveries are
    counted on. A topic that is read again from behind them leaves them here.
    """

    _rows: dict[Key, Array] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[Key, Array]]:
        return iter(list(self._rows.items()))

    def keep(self, key: Key, rows: Array) -> None:
        """Remember those of the rows of a partition; they stand behind what is remembered of it."""
        rows = rows[(rows["state"] != GONE) & (rows["count"] > 0)]
        if len(rows):
            before = self._rows.get(key)
            self._rows[key] = rows if before is None else np.concatenate([before, rows])

    def taken(self, topic_id: bytes) -> list[tuple[Key, Array]]:
        """What is remembered of a topic, which then is forgotten here."""
        keys = [key for key in self._rows if key[0] == topic_id]
        return [(key, self._rows.pop(key)) for key in keys]

    def trim(self, key: Key, start: int) -> None:
        """The records of a partition before an offset are not there any more."""
        rows = self._rows.pop(key, None)
        if rows is not None:
            self.keep(key, rows[rows["offset"] >= start])
