"""Which messages of which queues a repair gives up with the damaged batches of a run.

Only before the repair can this be told: afterwards later messages have their indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from kmq_storage import limits
from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.lost_messages import LostMessages, encoded
from kmq_storage.format.plain_columns import number_column, numbers_of
from kmq_storage.integrity.files.runs import LostRows
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex, counts_in
from kmq_storage.model import Place, Segment


class LostQueues:
    """The runs of a topic before its repair."""

    def __init__(self, reader: ChunkReader, topic: str, places: Sequence[Place]) -> None:
        self._reader = reader
        self._topic = topic
        self._places = places

    def of(
        self, segment: Segment, lost: LostRows | None, spans: Sequence[tuple[int, int]]
    ) -> list[bytes | None]:
        """For each range of lost offsets of a run its messages, encoded; None where unknown."""
        known = [place for place in self._places if place.end_offset <= segment.end_offset]
        if spans and lost is not None and known and known[-1].location == segment.location:
            with suppress(CorruptionError):
                runs = [RunIndex(self._reader, place, self._topic) for place in known]
                found = [encoded(each) for each in _found(runs, lost, spans)]
                if sum(map(len, found)) <= limits.LOST_MESSAGES_BYTES_MAX:
                    return [*found]
        return [None] * len(spans)


def _found(
    runs: Sequence[RunIndex], lost: LostRows, spans: Sequence[tuple[int, int]]
) -> Iterator[list[LostMessages]]:
    """The lost messages in each range of offsets of the last of these runs."""
    names, queues, rows, offsets = _messages(runs[-1], lost, spans)
    ends = runs[-1].spans(names)[1]
    indexes = counts_in(runs, names, runs[-1].place.end_offset)[queues] - ends[queues] + rows
    order = np.argsort(offsets)
    for low, high in offsets[order].searchsorted(spans).tolist():
        here = np.sort(order[low:high])
        firsts = np.flatnonzero(np.diff(queues[here], prepend=-1))
        behind = np.append(firsts[1:], len(here))[: len(firsts)]
        yield list(
            map(
                LostMessages,
                names.take(number_column(queues[here[firsts]])).to_pylist(),
                indexes[here[firsts]].tolist(),
                (indexes[here[behind - 1]] + 1).tolist(),
            )
        )


def _messages(
    run: RunIndex, lost: LostRows, spans: Sequence[tuple[int, int]]
) -> tuple[pa.Array, Numbers, Numbers, Numbers]:
    """The queues of lost messages; and for each message its queue's number, row and offset."""
    pieces = [name for span in lost.spans for name in run.names_between(*span)]
    column = pa.chunked_array(pieces, pa.binary()).combine_chunks().dictionary_encode()
    rows = np.concatenate([np.arange(0), *(np.arange(*span) for span in lost.spans)])
    offsets = _supposed(run, lost, spans) if lost.offsets is None else lost.offsets
    is_message = rows >= run.first_row
    queues = numbers_of(column.indices).astype(np.int64)
    # A run whose first records are lost may keep its first offset.
    return column.dictionary, queues, rows[is_message], offsets[is_message].clip(spans[0][0])


def _supposed(run: RunIndex, lost: LostRows, spans: Sequence[tuple[int, int]]) -> Numbers:
    """For each lost row an offset in `spans`, of the last ones before its queue's next message.

    A reader that passes over the row passes over this offset, too, and no other reader is told.
    """
    starts = np.array([start for start, _ in spans])
    found = [np.arange(0)]
    for first, behind in lost.spans:
        supposed = np.full(behind - first, starts[-1])
        queue = run.queue_of(behind - 1)
        begin, end = (behind, behind) if queue is None else run.rows_of(queue)
        if behind < end:
            after = int(run.offsets(behind, behind + 1)[0])
            supposed[max(begin - first, 0) :] = starts[starts.searchsorted(after) - 1]
        found.append(supposed)
    return np.concatenate(found)
