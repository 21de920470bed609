"""The unit that commits rows without a producer."""

from __future__ import annotations

from kmq_spark.client.encoding.routing import Rows, split
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import Stager, file_ids
from kmq_storage.log.state.topic_state import Topic


def records_unit(log: CommitLog, topic: Topic, rows: Rows, partition: int) -> Unit:
    """Return the unit that commits rows of a partition."""
    stager = Stager(log.files, file_ids(log), sync=log.durable)
    [records] = split(topic, rows, partition)
    placed = stager.place(records, room=log.inline_bytes_max)
    return Unit(placed.entries, placed.bodies, synced=log.durable)
