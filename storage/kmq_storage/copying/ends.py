"""Ends of keyed queues that the source of a copy forgot before the copy reached them.

An end is dropped when it is old and its run begins where the topic begins. A copy may already have
the first part of such a run, with messages that the end would have ended.
"""

from __future__ import annotations

import numpy as np

from kmq_storage.format.plain_columns import number_column
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.replacement import Records, Replacement
from kmq_storage.maintenance.runs import BegunRun


def records_behind(
    copied: Topic, proof: ChunkReader, piece: Replacement, reader: ChunkReader
) -> Records:
    """The records of a piece that follows the records that were copied.

    If more messages of a queue were copied than the source still has, the queue begins in the piece
    at the index that it has in the source.
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
