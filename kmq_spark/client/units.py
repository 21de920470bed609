"""What commits rows that nobody gathers."""

from __future__ import annotations

from kmq_spark.client.routing import Rows, split
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import Stager, file_ids
from kmq_storage.log.topic_state import Topic


def records_unit(log: CommitLog, topic: Topic, rows: Rows, partition: int) -> Unit:
    """What commits rows of a partition."""
    stager = Stager(log.files, file_ids(log), sync=log.durable)
    placed = [
        stager.place(each, room=log.inline_bytes_max) for each in split(topic, rows, partition)
    ]
    return Unit(
        tuple(entry for each in placed for entry in each.entries),
        tuple(body for each in placed for body in each.bodies),
        synced=log.durable,
    )
