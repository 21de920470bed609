"""`spark.readStream.format("kmq")`: the driver's side of a streaming read.

For each micro-batch Spark calls `latestOffset(start, limit)`, where `start` is the end of the last
batch that the sink has committed; then `partitions(start, end)`; then `read` on the executors. Two
things that Spark does not do for a source are done here:

- Spark doesn't store where the first batch begins. So the first batch's end contains that, too
  (docs/design/spark-first-offset.md).
- Spark calls `commit` one batch late, and never for the last batch. So `latestOffset` moves the
  group, to `start`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kmq_spark.datasource.executor.announcement import announced, announcing
from kmq_spark.datasource.executor.reading import read_partition
from kmq_spark.datasource.groups.committed import QueryMember
from kmq_spark.datasource.groups.progress import latest_of_progress
from kmq_spark.datasource.offsets import StreamOffset, parse_stream_offset, records_of
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_spark.datasource.planning.history import History, history_of
from kmq_spark.datasource.planning.plan import held, plan
from kmq_spark.datasource.planning.start_and_end import known_to_group
from kmq_spark.datasource.planning.tasks import Task
from kmq_spark.datasource.planning.time_bounds import Times, bounds_by_offset
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_spark.datasource.planning.view import View
from kmq_spark.datasource.streams.admission import BYTES_DEFAULT, Limits
from kmq_spark.datasource.streams.plan import log_end, next_end, ranges_between
from kmq_spark.datasource.streams.termination import at_termination
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState

Offset = dict[str, Any]


class KmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream with exactly the same batches after restarts and replays.

    Spark keeps one in a process of its own for each run of a query; executors get copies.
    """

    def __init__(
        self,
        options: SourceOptions,
        view: View,
        environment: Environment = SYSTEM,
    ) -> None:
        self._options = options
        self._view = view
        self._environment = environment
        self._losses = Losses(fail=options.fail_on_data_loss)
        self._available_now = False
        self._final: StreamOffset | None = None
        #: Whether an AvailableNow run has nothing left to read.
        self._reached_end = False
        #: When this run planned its last batch, by the monotonic clock.
        self._planned: float | None = None
        self._member: QueryMember | None = None
        #: Whether a task of this run has the announcement to the group of what the query reads.
        self._announced = False
        #: The LSN and start of a look that found nothing new: the same look needs no work.
        self._idle: tuple[int, Offset | None] | None = None
        self._end = StreamOffset()
        #: How many records were lost before the present batch.
        self._lost = 0
        #: The log that the last `latestOffset` opened, for the other calls of its trigger.
        self._opened: CommitLog | None = None
        #: The facts of the last `reportLatestOffset`, and what it returned.
        self._reported: tuple[tuple[Any, ...], Offset] = ((), {})
        #: The LSN and ranges, by topic id, of the last `latestOffset`; `partitions` reuses them.
        self._examined: tuple[int, Mapping[bytes, TopicRanges]] = (-1, {})
        #: The last two offsets of this run, as Spark keeps them and parsed.
        self._parsed_offsets: list[tuple[Offset, StreamOffset]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return KmqStreamReader, (self._options, self._view)

    def initialOffset(self) -> Offset:
        """Return the open start, always the same: Spark asks twice, and takes the second answer."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tell Spark that batches are limited; `latestOffset` takes the limits from the options."""
        limits = self._limits()
        if limits.records is not None:
            return ReadMaxRows(limits.records)
        return ReadMaxBytes(limits.bytes or BYTES_DEFAULT)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note that this run ends; the next `latestOffset` fixes where.

        It isn't fixed here, since a batch of an earlier run may have to be replayed first.
        """
        self._available_now = True

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return where the next batch ends; everything before `start` is finished and committed."""
        if start is not None and self._reached_end:
            return start
        log = self._opened = self._open()
        state = log.refresh()
        if start is not None and self._idle == (state.lsn, start):
            return start
        finished = StreamOffset() if start is None else self._parsed(start)
        self._lost = finished.lost
        self._losses.tell(finished.losses)
        member = self._join(log, finished)
        if member is not None:
            member.advance(finished)
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._limits()
        end = looking_again(log, lambda seen: self._next_end(log, seen, finished, limits), state)
        end = self._end = self._with_losses(finished, end, limits)
        if end is finished:
            self._idle = None if limits.least else (log.state.lsn, start)
            if self._available_now:  # in a bucket, a membership outlives its process
                self._reached_end = True
                self.stop()
            return start or end.to_json()
        self._planned = self._environment.monotonic()
        if member is not None:
            end = self._end = replace(end, query=member.place.query)
            if finished.is_start and end.first is not None:
                member.advance(StreamOffset(positions=end.first, ids=end.ids))
        return self._remember(end.to_json(), end)

    def _next_end(
        self, log: CommitLog, state: StoreState, finished: StreamOffset, limits: Limits
    ) -> StreamOffset:
        history, options = history_of(log, state, self._options.archive), self._options
        if finished.is_start:
            options = self._options_by_offset(log, state, history)
        if self._available_now and self._final is None:
            self._final = log_end(state, options)
        end, ranges = next_end(
            state,
            options,
            finished,
            limits=limits,
            losses=self._losses,
            final=self._final,
            history=history,
        )
        self._examined = state.lsn, {each.topic.id: each for each in ranges}
        if history is not None or any(each.doubtful.any() for each in ranges):
            # Losses are counted here: Spark asks for the batch's progress before its `partitions`.
            held(self._batch_ranges(state, finished, end), self._losses, history)
        return end

    def _with_losses(
        self, finished: StreamOffset, end: StreamOffset, limits: Limits
    ) -> StreamOffset:
        """Return an end with the losses that it counts; without a new record only for them."""
        losses = dict(self._losses.untold)
        if end is not finished:
            return replace(end, losses=losses, lost=self._lost_so_far())
        if not losses or limits.least:  # what waits is counted with the records that it waits for
            return end
        return replace(finished, first=None, losses=losses, lost=self._lost_so_far())

    def _lost_so_far(self) -> int:
        return self._lost + records_of(self._losses.untold)

    def _parsed(self, offset: Offset) -> StreamOffset:
        """Parse an offset from Spark; mostly it is a recent one of this run, already parsed."""
        for known, parsed in self._parsed_offsets:
            if known == offset:
                return parsed
        parsed = parse_stream_offset(offset)
        self._remember(offset, parsed)
        return parsed

    def _remember(self, offset: Offset, parsed: StreamOffset) -> Offset:
        self._parsed_offsets = [*self._parsed_offsets[-1:], (offset, parsed)]
        return offset

    def _limits(self) -> Limits:
        options = self._options
        size = options.max_bytes_per_trigger
        if size is None and options.max_offsets_per_trigger is None:
            size = BYTES_DEFAULT
        return Limits(records=options.max_offsets_per_trigger, bytes=size, least=self._least())

    def _least(self) -> int:
        """Return how many records a batch waits for: none at first, nor after the given delay."""
        options = self._options
        # An AvailableNow run has to reach its end, however few records are left.
        if options.min_offsets_per_trigger is None or self._planned is None or self._available_now:
            return 0
        waited = self._environment.monotonic() - self._planned
        return 0 if waited >= options.max_trigger_delay else options.min_offsets_per_trigger

    def _options_by_offset(
        self, log: CommitLog, state: StoreState, history: History | None
    ) -> SourceOptions:
        begun = known_to_group(state, self._options.group)
        times = Times(ChunkReader(log.files), self._environment.now_us(), history, begun=begun)
        return bounds_by_offset(self._options, state, times)

    def _join(self, log: CommitLog, known: StreamOffset) -> QueryMember | None:
        if self._options.group is not None and self._member is None:
            query = known.query or self._environment.new_uuid()
            self._member = QueryMember(log, self._options.group, query, self._environment)
            at_termination(self.stop)
        return self._member

    def reportLatestOffset(self) -> Offset:
        """Return the end of the log for the query's progress, with what a listener needs."""
        state, lost = self._log().refresh(), self._lost_so_far()
        place = self._member.place if self._member is not None else None
        seen = state.lsn, self._end, place, lost
        if self._reported[0] != seen:
            found = latest_of_progress(
                log_end(state, self._options),
                self._end,
                url=self._options.url,
                place=place,
                lost=lost,
                archived=self._options.archive is not None,
            )
            self._reported = seen, found
        return self._reported[1]

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch, also of one that an earlier run planned."""
        log, begins, ends = self._log(), self._parsed(start), self._parsed(end)
        member = self._join(log, ends)

        def planned(state: StoreState) -> list[InputPartition]:
            ranges = self._batch_ranges(state, begins, ends)
            self._view.check([each.topic for each in ranges])
            history = history_of(log, state, self._options.archive)
            return plan(ranges, self._losses, self._options.tasks, history, log.files)

        tasks = looking_again(log, planned)
        self._lost = begins.lost
        self._losses.report_again(ends.losses)
        self._examined = -1, {}  # these ranges would keep a replaced state in memory
        if member is None or self._announced:
            return tasks
        # While a batch has no partitions, it announces the query only: a later one announces again.
        self._announced = bool(ends.positions)
        first, *others = tasks or [Task(())]
        return [announcing(first, member.place, ends.positions), *others]

    def _batch_ranges(
        self, state: StoreState, begins: StreamOffset, ends: StreamOffset
    ) -> list[TopicRanges]:
        """Return what a batch reads, with what `latestOffset` found out about these ranges."""
        lsn, examined = self._examined
        known = examined if lsn == state.lsn else {}
        ranges = ranges_between(state, begins, ends, self._losses)
        return [each.known(known.get(each.topic.id)) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        task = announced(partition, self._options.url)
        return read_partition(self._options, task, self._view)

    def commit(self, end: Offset) -> None:
        """Do nothing: `latestOffset` has moved the group already."""

    def stop(self) -> None:
        """Leave the group. Spark ends the process without calling this."""
        if self._member is not None:
            self._member.leave()
            self._member = None

    def _log(self) -> CommitLog:
        """Return the log for this trigger: opening one in a bucket takes two requests."""
        return self._opened or self._open()

    def _open(self) -> CommitLog:
        return open_log(self._options.url, read_only=self._options.group is None)
