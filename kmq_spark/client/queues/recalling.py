"""Taking back a record that was sent to a queue."""

from __future__ import annotations

from kmq_spark.client.records.metadata import RecordMetadata
from kmq_spark.client.records.stored_times import stored_times
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.queues import handing


def recall(log: CommitLog, queue: Queue, sent: RecordMetadata) -> bool:
    """Take back the record that was sent; False when it was delivered, or isn't in this queue."""
    return _is_in(log, queue, sent) and handing.recall(log, queue, sent.offset)


def _is_in(log: CommitLog, queue: Queue, sent: RecordMetadata) -> bool:
    """Whether the place of what was sent has that record, as far as it can be read.

    A deleted queue of this name had another id. A clone's or copy's queue has the id of its source,
    but another record where the source stored one later: their times differ.
    """
    if sent._queue_id != queue.id:
        return False
    place = sent.partition, sent.offset
    time: int = sent[3]
    return stored_times(log, queue.id, [place]).get(place, time) == time
