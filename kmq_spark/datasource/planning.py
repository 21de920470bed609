"""From what a read wants to tasks: its history's, and those of what the log holds of the rest."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.data_loss import Losses, readable_parts
from kmq_spark.datasource.history import History, archived_tasks
from kmq_spark.datasource.ranges import TaskLimits
from kmq_spark.datasource.tasks import TopicRange, plan_tasks


def plan(
    wanted: Sequence[TopicRange], losses: Losses, limits: TaskLimits, history: History | None
) -> list[InputPartition]:
    """The tasks that read these ranges; what neither archive nor log holds is reported."""
    archived, rest = ([], wanted) if history is None else history.split(wanted)
    ranges = [part for each in rest for part in readable_parts(each, losses)]
    return [*archived_tasks(archived), *plan_tasks(ranges, limits)]
