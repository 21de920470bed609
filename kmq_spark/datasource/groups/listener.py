"""A StreamingQueryListener for queries that read kmq: lag, throughput, and their groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from kmq_spark.datasource.groups.committed import advance_group
from kmq_spark.datasource.groups.lag import Behind, behind, looked_at, sources_of
from kmq_spark.datasource.groups.progress import SourceProgress
from kmq_spark.datasource.opening import open_log
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.errors import KmqError

_log = logging.getLogger("kmq_spark.listener")


@dataclass(frozen=True)
class QueryReport:
    """What a batch of a query did, and what it left behind."""

    query: str
    name: str | None
    batch: int
    records: int
    records_per_second: float
    #: Records, bytes and seconds to the end of the log; None where its store can't be opened.
    behind: Behind | None
    #: Records that failOnDataLoss=false passed over, over all runs of the query.
    lost: int
    group: str | None

    def __str__(self) -> str:
        lag = "an unknown number of records"
        if self.behind is not None:
            lag = (
                f"{self.behind.records} records, {self.behind.bytes} bytes, "
                f"{self.behind.seconds:.1f} s"
            )
        lost = f"; {self.lost} records LOST" if self.lost else ""
        return (
            f"query {self.name or self.query}, batch {self.batch}: {self.records} records, "
            f"{self.records_per_second:.0f} per second; behind: {lag}{lost}"
        )


class KmqListener(StreamingQueryListener):
    """Logs each batch of each query that reads kmq, and moves its group at once.

        spark.streams.addListener(KmqListener())

    The logger `kmq_spark.listener` gets a line per batch (INFO; WARNING when more was lost).
    `report` is called with the same as a `QueryReport`, for metrics, and `latest` has the newest
    one of each query. Other queries are ignored.

    `storage_options`: as for `kmq.open`. A query's progress doesn't contain them; without them a
    bucket is opened with what the environment says.
    """

    def __init__(
        self,
        report: Callable[[QueryReport], object] | None = None,
        environment: Environment = SYSTEM,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._report = report
        self._storage_options = storage_options
        self._environment = environment
        #: The newest report of each running query, by its id.
        self.latest: dict[str, QueryReport] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Move the groups of a finished batch, then report it."""
        progress = event.progress
        sources = sources_of(progress, self._storage_options)
        if not sources:
            return
        for source in sources:
            _follow(source)
        report = self._made(progress, sources)
        before = self.latest.get(report.query)
        self.latest[report.query] = report
        lost_more = report.lost > (before.lost if before is not None else 0)
        _log.log(logging.WARNING if lost_more else logging.INFO, "%s", report)
        if self._report is not None:
            self._report(report)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        self.latest.pop(str(event.id), None)

    def _made(self, progress: Any, sources: list[SourceProgress]) -> QueryReport:
        return QueryReport(
            query=str(progress.id),
            name=progress.name,
            batch=progress.batchId,
            records=progress.numInputRows,
            records_per_second=progress.processedRowsPerSecond,
            behind=_sum([self._behind(source) for source in sources]),
            lost=sum(source.lost for source in sources),
            group=next((each.place.group for each in sources if each.place), None),
        )

    def _behind(self, source: SourceProgress) -> Behind | None:
        now = self._environment.now_us()
        return looked_at(source, lambda state: behind(state, source, now))


def follow(query: StreamingQuery, storage_options: Mapping[str, Any] | None = None) -> None:
    """Move the groups of a query to the end of its last finished batch."""
    for source in sources_of(query.lastProgress, storage_options):
        _follow(source)


def _follow(source: SourceProgress) -> None:
    """Move the group to the end of a finished batch: also of the last one, which Spark never tells
    the source of."""
    if source.place is None or source.url is None:
        return
    try:
        log = open_log(source.url, read_only=False)
        log.refresh()
        advance_group(log, source.place, source.finished)
    except (KmqError, OSError) as problem:
        _log.warning("group %s was not moved: %s", source.place.group, problem)


def _sum(parts: list[Behind | None]) -> Behind | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Behind(
        sum(part.records for part in known),
        sum(part.bytes for part in known),
        max((part.seconds for part in known), default=0.0),
    )
