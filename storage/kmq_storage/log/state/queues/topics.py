"""The topics that a queue is bound to, and the records that it delivered of unbound topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from kmq_storage.arrays import Array
from kmq_storage.format.manifest import Key
from kmq_storage.log.state.queues.rows import GONE


@dataclass(frozen=True, slots=True)
class Binding:
    """How a queue reads a topic: from which offsets on, and with which filters."""

    #: Offsets by partition from which on a filter holds, and the filter. The first period tells
    #: where the queue begins. Partitions that were added later are read from their beginning.
    periods: tuple[tuple[tuple[int, ...], str | None], ...]

    def changed(
        self, starts: tuple[int, ...], expression: str | None, looked: Callable[[int], int]
    ) -> Binding:
        """The binding with another filter from these offsets on.

        Periods whose records were all looked at (up to `looked`, per partition) are dropped. The
        queue's first offsets are kept, for consumers that read the topic by own positions.
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
        """The first offset that the queue reads of a partition."""
        return _at(self.periods[0][0], partition)

    def filter_at(self, partition: int, offset: int) -> tuple[str | None, int | None]:
        """The filter at an offset, and the offset where the next one begins."""
        current, following = None, None
        for starts, expression in self.periods:
            if _at(starts, partition) <= offset:
                current = expression
            elif following is None:
                following = _at(starts, partition)
        return current, following

    @property
    def has_filters(self) -> bool:
        """Whether any period has a filter."""
        return any(expression is not None for _, expression in self.periods)

    def filters_from(self, partition: int, offset: int) -> bool:
        """Whether there is a filter at or after an offset."""
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
    """Unfinished records of unbound topics that receivers got before.

    When the topic is bound again, their locks still hold and their deliveries are counted on.
    Records before the new binding's start stay here.
    """

    _rows: dict[Key, Array] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[Key, Array]]:
        return iter(list(self._rows.items()))

    def keep(self, key: Key, rows: Array) -> None:
        """Keep the unfinished, delivered records among rows, which follow those kept before."""
        rows = rows[(rows["state"] != GONE) & (rows["count"] > 0)]
        if len(rows):
            before = self._rows.get(key)
            self._rows[key] = rows if before is None else np.concatenate([before, rows])

    def taken(self, topic_id: bytes) -> list[tuple[Key, Array]]:
        """Remove and return the rows of a topic."""
        keys = [key for key in self._rows if key[0] == topic_id]
        return [(key, self._rows.pop(key)) for key in keys]

    def trim(self, key: Key, start: int) -> None:
        """Drop the records of a partition before its new start."""
        rows = self._rows.pop(key, None)
        if rows is not None:
            self.keep(key, rows[rows["offset"] >= start])
