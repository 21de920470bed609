"""Which partitions are worth a closer look, found by a look at all rows of a store as columns.

Of tens of thousands of partitions most have nothing to do, and a look at each takes seconds. Some
rows in pages are counted though they were trimmed, or newer rows in memory replaced them. So what
is found is an upper bound, and planning looks at the partition again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import Key, Rows
from kmq_storage.log.index.offset_index import IsWanted
from kmq_storage.log.index.row_table import ROW_BYTES, PackedRows, RowTable
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition

#: The rows in memory of this many partitions are looked at together.
_PARTITIONS = 4_096
#: More rows than anybody waits for.
_MANY = 1 << 62

#: Partitions, the places at which their rows begin, the rows, and the partitions that have no
#: other rows.
_Look: TypeAlias = tuple[list[Key], list[int], Rows, set[Key]]


def wanted_rows(state: StoreState, wanted: IsWanted) -> dict[Key, int]:
    """How many wanted rows each partition has, at most."""
    return _folded(state, lambda rows: wanted(rows).astype(np.int64), np.add, _MANY)


def oldest_rows(state: StoreState) -> dict[Key, int]:
    """The `Row.time` of the oldest row of each partition, or an earlier one."""
    return _folded(state, lambda rows: rows.time, np.minimum, 0)


def _folded(
    state: StoreState, values_of: Callable[[Rows], Numbers], fold: np.ufunc, unknown: int
) -> dict[Key, int]:
    found: dict[Key, int] = {}
    try:
        for keys, starts, rows, alone in chain(_in_pages(state), _in_memory(state)):
            values = fold.reduceat(values_of(rows), starts).tolist()
            before = {key: found[key] for key in (found.keys() & keys) - alone}
            found.update(zip(keys, values, strict=True))
            found.update((key, int(fold(found[key], value))) for key, value in before.items())
    except CorruptionError:  # a closer look at the page's partitions reports it
        return {key: unknown for key, *_ in _partitions(state)}
    return found


def _in_pages(state: StoreState) -> Iterator[_Look]:
    assert state.manifest is not None, "only a reader's state knows where records are"
    for ref in state.manifest.refs:
        page = state.manifest.page(ref)
        yield list(page.spans), [first for first, _ in page.spans.values()], page, set()


def _in_memory(state: StoreState) -> Iterator[_Look]:
    filled = (each for each in _partitions(state) if len(each[2]))
    while some := list(islice(filled, _PARTITIONS)):
        packed = [bytes(table.packed) for *_, table in some]  # copied, as it may grow meanwhile
        counts = np.fromiter(map(len, packed), np.int64, len(packed)) // ROW_BYTES
        starts = np.cumsum(counts) - counts
        rows = PackedRows(b"".join(packed))
        bases, lengths = rows.bases[starts], np.add.reduceat(rows.ends - rows.bases, starts)
        alone = {
            key
            for (key, part, _), base, length in zip(some, bases, lengths, strict=True)
            if base <= part.start and base + length >= part.end
        }
        yield [key for key, *_ in some], starts.tolist(), rows, alone


def _partitions(state: StoreState) -> Iterator[tuple[Key, Partition, RowTable]]:
    """The partitions with their rows in memory."""
    for topic in list(state.topics.values()):
        for part in topic.parts:
            assert part.index is not None, "only a reader's state knows where records are"
            yield part.index.key, part, part.index.recent
