"""The queues of a keyed topic that are to be read, and their rows in a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_storage.arrays import Mask
from kmq_storage.format.binary_columns import binary_column
from kmq_storage.format.plain_columns import flags_of, scalar

if TYPE_CHECKING:
    from kmq_storage.log.reading.run_index import RunIndex


@dataclass(frozen=True, slots=True)
class WantedQueues:
    """Queues chosen by names and by prefixes of names."""

    names: tuple[bytes, ...] = ()
    prefixes: tuple[bytes, ...] = ()

    def rows(self, run: RunIndex) -> list[tuple[int, int]]:
        """The ranges of rows [first, behind) of these queues in a run, ascending."""
        firsts, behinds = run.spans(binary_column(sorted(self.names)))
        found = list(zip(firsts.tolist(), behinds.tolist(), strict=True))
        for prefix in self.prefixes:
            above = _above(prefix)
            behind = run.place.rows if above is None else run.row_from(above)
            found.append((run.row_from(prefix), behind))
        return _united(found)

    def among(self, keys: pa.Array) -> Mask:
        """A mask of the names that are chosen."""
        import pyarrow.compute as pc  # slow to import, and not needed to parse options

        found = pc.is_in(keys, value_set=binary_column(self.names))
        for prefix in self.prefixes:
            found = pc.or_(found, pc.starts_with(keys, prefix).fill_null(scalar(False)))
        return flags_of(found)


def _above(prefix: bytes) -> bytes | None:
    """The least name above all names with this prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _united(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, sorted and with overlapping ones joined."""
    ordered = sorted((first, behind) for first, behind in ranges if first < behind)
    seen = [0, *accumulate((behind for _, behind in ordered), max)]
    cut = [(max(first, at), behind) for (first, behind), at in zip(ordered, seen, strict=False)]
    return [(first, behind) for first, behind in cut if first < behind]
