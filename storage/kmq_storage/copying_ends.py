"""What a copy of keyed queues has to know of ends that its source forgot before it came to them.

An end goes when it is old and its run begins where the topic does. Of such a run a copy may have
the first part already, with messages that the end would have ended.
"""

from __future__ import annotations

import numpy as np

from kmq_storage.format.plain_columns import number_column
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.topic_state import Topic
from kmq_storage.maintenance.replacement import Records, Replacement
from kmq_storage.maintenance.runs import BegunRun


def records_behind(
    copied: Topic, proof: ChunkReader, piece: Replacement, reader: ChunkReader
) -> Records:
    """The records of a piece that follows what was copied.

    Queues of which more was copied than the source has begin there at the index that they have in
    the source.
    """
    row, start = piece.rows[0], piece.topic.partition(piece.partition).start
    if not (row.in_run and row.base_offset <= start and row.base_offset < piece.span[0]):
        return piece.merged(reader)
    return _rest_of_first_run(copied, proof, piece, reader)


def _rest_of_first_run(
    copied: Topic, proof: ChunkReader, piece: Replacement, reader: ChunkReader
) -> Records:
    from kmq_storage.maintenance.counted import next_indexes

    number, first = piece.partition, piece.span[0]
    theirs = next_indexes(proof, copied, number, first)
    indexes = np.maximum(next_indexes(reader, piece.topic, number, first).of_all(theirs.names), 0)
    ended = indexes < theirs.indexes
    if not ended.any():
        return piece.merged(reader)
    anew = Beginnings(theirs.names.filter(number_column(ended)), indexes[ended])
    return BegunRun(piece.slices(reader), piece.schema, piece.held[0], anew)
