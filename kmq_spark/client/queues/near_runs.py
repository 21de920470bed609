"""Runs of a queue's records that are near each other, read at once.

A queue with priorities, or whose records were finished in no order, hands out thousands of short
runs. Reading each alone costs more than also reading what is between them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kmq_storage.format.queue_entries import Run
from kmq_storage.log.reading.few_records import Part

if TYPE_CHECKING:
    import numpy.typing as npt

    from kmq_storage.arrays import Numbers

#: The most records between two runs that are read along with them: of ten priorities in no order,
#: those of one are rarely further apart.
_BETWEEN = 32
#: Average bytes above which records stay where they are mapped; smaller ones are copied.
_COPIED = 4096


def near(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """The same runs in groups: of one partition, in order, with little between them."""
    begin = 0
    for at, (before, run) in enumerate(pairwise(runs), 1):
        between = run.first - before.first - before.rows
        if before[:2] != run[:2] or not 0 <= between <= _BETWEEN:
            yield runs[begin:at]
            begin = at
    if runs:
        yield runs[begin:]


def spanned(runs: Sequence[Run]) -> Run:
    """All records from the first of a group to the last."""
    first, last = runs[0], runs[-1]
    return first._replace(rows=last.end - first.first)


def held_parts(runs: Sequence[Run], part: Part) -> Iterator[Part]:
    """What of a slice is in the runs of a group."""
    if len(runs) == 1:
        yield part
        return
    part = part.as_slice()
    offsets = part.offsets()
    at, (firsts, rows, _) = _placed(runs, offsets)
    held = np.flatnonzero((at >= 0) & (offsets < (firsts + rows)[at]))
    if part.batch.nbytes <= _COPIED * part.rows:
        yield part.taken(held)
        return
    for some in np.split(held, np.flatnonzero(np.diff(at[held])) + 1):
        if len(some):
            low, count = int(some[0]), len(some)
            batch = part.batch.slice(low, count)
            end = part.offset_of(low + count)
            yield replace(part, batch=batch, offset=part.offset_of(low), end=end)


def deliveries_in(runs: Sequence[Run], part: Part) -> list[int]:
    """The number of the delivery of each record of a slice, of which all are in these runs."""
    if len(runs) == 1:
        return [runs[0].delivery] * part.rows
    at, (_, _, numbers) = _placed(runs, part.as_slice().offsets())
    return list(numbers[at].tolist())


def _placed(runs: Sequence[Run], offsets: Numbers) -> tuple[npt.NDArray[np.intp], Numbers]:
    """Of each offset the last run that begins up to it; firsts, rows and deliveries of the runs."""
    columns = np.array([run[2:] for run in runs], np.int64).T
    return np.searchsorted(columns[0], offsets, "right") - 1, columns
