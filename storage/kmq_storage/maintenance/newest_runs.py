"""A new run takes in earlier ones, so that the newest messages of a queue are in few places.

Each message is written more often then. So this is done only where messages come slowly: of a
backlog, runs are merged when they have grown (`compact.plan_merges`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kmq_storage import limits
from kmq_storage.cutting import taken_in
from kmq_storage.format.manifest import Row, Rows, weight_of
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.replacement import Replacement

#: Earlier runs are taken in that are less than so many times as large as the new one. So of seals
#: with a message of each queue, nine become a run, and the newest ten are in this and the next.
_TIMES = 9


@dataclass(slots=True)
class NewRuns:
    """The runs that are sealed now."""

    #: By topic and partition, where the last of them ends.
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def noted(self, plan: Iterable[Replacement]) -> Iterator[Replacement]:
        """The same plan to seal, whose runs are noted."""
        for each in plan:
            if each.topic.settings.keyed:
                self.ends[each.topic.name, each.partition] = each.rows[-1].end_offset
            yield each


def plan_newest(state: StoreState, new: NewRuns, now: int) -> Iterator[Replacement]:
    """Plan to merge each new run with those before it that it takes in.

    `now` (UTC us) decides which ends of queues are old enough to be dropped.
    """
    old = now - round(limits.TOMBSTONE_DELAY * 1e6)
    for (name, number), end in new.ends.items():
        if (topic := state.find_topic(name)) is None:
            continue  # it was deleted meanwhile
        for runs in topic.index(number).runs(topic.partition(number).start, end, _is_run):
            together = _taken_in(runs) if runs[-1].end_offset == end else ()
            if len(together) > 1:
                yield Replacement(topic, number, together, state.lsn, ends_before=old)


def _is_run(rows: Row | Rows) -> Any:
    return rows.in_run & (rows.weight < limits.RUN_BYTES)


def _taken_in(runs: list[Row]) -> tuple[Row, ...]:
    """The last of these runs with all that it takes in."""
    since = runs[-1].time - runs[-2].time if len(runs) > 1 else 0
    most = min(limits.RUN_BYTES, limits.TAKEN_IN_BYTES * since // 1_000_000)
    return tuple(runs[-taken_in([*map(weight_of, runs)], most, _TIMES) :])
