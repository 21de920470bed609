"""Columns that a typed topic gets while the job runs: its frame, and so its batches, lack them."""

from __future__ import annotations

from collections.abc import Sequence

from kmq_spark.lake.record import ArchiveRecord
from kmq_storage.errors import IllegalStateError
from kmq_storage.log.state import StoreState


def refuse_growth(state: StoreState, record: ArchiveRecord, columns: Sequence[str]) -> None:
    """IllegalStateError when records of a batch with these columns may have others, too.

    The state must be no older than the one that the batch was planned in.
    """
    if not record.typed:
        return
    for topic in filter(None, map(state.find_topic, record.topics)):
        schema = topic.settings.schema
        new = [name for name in ([] if schema is None else schema.names) if name not in columns]
        if new:
            raise IllegalStateError(
                f"topic {topic.name} has got column {new[0]!r} since this job began, whose batches "
                "lack it: nothing of this one was archived; start the job again, and it goes on "
                "with all columns",
                topic=topic.name,
                column=new[0],
            )
