"""`kmq.incremental`: what a group has not read yet, as a batch; no checkpoint is needed.

The job is the group's member while it runs. So a second job is refused, and so are the commits of a
job that was taken for dead (docs/design/spark-groups.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from kmq_spark.datasource.groups.committed import (
    QueryMember,
    advance_group,
    announce,
    forward_entries,
)
from kmq_spark.datasource.groups.move import OPTION, has_moved, move_option
from kmq_spark.datasource.offsets import Positions, StreamOffset
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.bounds import EARLIEST, Bound
from kmq_spark.datasource.options.source_options import SourceOptions, parse_source_options
from kmq_spark.datasource.planning.coverage import cover
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_spark.datasource.planning.history import history_of
from kmq_spark.datasource.planning.start_and_end import first_of_stream, known_to_group
from kmq_spark.datasource.planning.time_bounds import Times, bounds_by_offset
from kmq_spark.datasource.register import activate, checked_session
from kmq_spark.datasource.store_url import as_options, is_storage_option
from kmq_spark.datasource.streams.admission import Limits
from kmq_spark.datasource.streams.plan import admitted
from kmq_spark.datasource.warning import warn_once
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import IllegalStateError, InvalidRequestError, NotFoundError
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import check_name
from kmq_storage.objects.storage_options import option_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Options that are resolved once, here; the DataFrame gets offsets and full paths in place of them.
_RESOLVED = (
    "subscribe",
    "subscribepattern",
    "assign",
    "partitions",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "archive",
)


def incremental(
    spark: SparkSession,
    url: str | os.PathLike[str],
    group: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: object,
) -> Incremental:
    """Read what a group has not read yet, up to a fixed end; a clean exit moves the group there.

        with kmq.incremental(spark, "data/shop", "billing", subscribe="orders") as new:
            new.write(new.df.groupBy("key").count().selectExpr("key", "string(count) value"),
                      topic="counts")

    After an exception the group stays where it was.

    Args:
        spark: The session.
        url: The store.
        group: The consumer group. A second job or query of the group is refused meanwhile.
        options: Those of a batch read. `startingOffsets` (default: earliest) holds where the group
            has no commit; `maxOffsetsPerTrigger` and `maxBytesPerTrigger` limit the batch.
        storage_options: As for `kmq.open`.
    """
    if not isinstance(url, str | os.PathLike):
        raise InvalidRequestError(f"store {url!r} is not a path or URL", option="url")
    texts = {name: option_text(value) for name, value in options.items()}
    texts = {**as_options(storage_options or {}), **texts}
    return Incremental(checked_session(spark, "read"), os.fspath(url), group, texts)


class Incremental:
    """The batch of what a group has not read yet: a context manager around `df`."""

    def __init__(self, spark: SparkSession, url: str, group: str, options: dict[str, str]) -> None:
        self._spark = spark
        self._given = options
        self._group = group
        self._options = _parsed(options, url, group)
        self._member: QueryMember | None = None
        self._end = StreamOffset()
        self._df: DataFrame | None = None
        #: Whether a write was tried, and whether it moved the group.
        self._tried = self._written = False
        #: How the last write that was tried moves the group.
        self._move: tuple[GroupOffsetsEntry, ...] = ()
        #: The LSN at which the job joined its group; it is higher in each job.
        self._joined = 0

    def __enter__(self) -> Self:
        self._tried = self._written = False
        log = self._log()
        name = "a batch job (kmq.incremental)"
        self._member = QueryMember(log, self._group, SYSTEM.new_uuid(), SYSTEM, name=name)
        try:
            starts, self._end = looking_again(log, lambda state: _bounds(log, state, self._options))
            place = self._member.place
            announce(log, place, name, self._end.positions)
            self._joined = log.state.lsn
            self._df = self._load(starts)
        except BaseException:
            self._leave()
            raise
        return self

    def _load(self, starts: Positions) -> DataFrame:
        passed = {n: text for n, text in self._given.items() if n.lower() not in _RESOLVED}
        end, ends = self._end, self._end.positions
        reader = self._spark.read.format("kmq").options(**passed)
        if self._options.archive is not None:
            reader = reader.option("archive", self._options.archive)
        reader = reader.option("assign", json.dumps({name: [*ends[name]] for name in ends}))
        for option, each in (("starting", replace(end, positions=starts)), ("ending", end)):
            reader = reader.option(f"{option}Offsets", json.dumps(each.to_json()))
        return reader.load(self._options.url)

    @property
    def df(self) -> DataFrame:
        """The records as a DataFrame; each record is in one such batch only."""
        if self._df is None:
            raise IllegalStateError("use kmq.incremental as a context manager: `with ... as new:`")
        return self._df

    def write(self, frame: DataFrame, **options: object) -> None:
        """Append a DataFrame to topics or a queue of the same store, and move the group with it.

        Both are one commit: everything is stored and the group is at its end, or nothing changed.
        It may be called once in a batch. After a write that failed, the group stays where it was
        unless a later write moves it. A later write does nothing if the failed one was stored after
        all.
        """
        if self._member is None:
            raise IllegalStateError("write inside of the `with` block: the group moves at its end")
        if self._written:
            raise IllegalStateError(
                "one write moves the group: put what belongs together into one DataFrame with a "
                "'topic' column"
            )
        _refuse_versions(options)
        state = self._log().refresh()
        if self._tried and has_moved(state, self._group, self._move):
            warn_once(f"group {self._group}: a write that failed was stored, this one is left out")
            self._written = True
            return
        self._tried = True
        self._move = forward_entries(state, self._member.place, self._end)
        texts = {name: option_text(value) for name, value in options.items()}
        client = {name: n for name, n in self._given.items() if is_storage_option(name.lower())}
        activate(self._spark)
        writer = frame.write.format("kmq").mode("append").options(**client).options(**texts)
        move = move_option(self._member.place, self._move)
        writer.options(**self._version()).option(OPTION, move).save(self._options.url)
        self._written = True

    def _version(self) -> dict[str, str]:
        """Return what identifies a write that moves no group, since there was nothing to read."""
        if self._move:
            return {}
        return {"txnAppId": f"kmq.incremental {self._group}", "txnVersion": str(self._joined)}

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        assert self._member is not None, "nothing is left that was not entered"
        try:
            if error is None and self._written == self._tried:
                log = self._log()
                log.refresh()
                advance_group(log, self._member.place, self._end, durable=True)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._member is not None:
            self._member.leave()
            self._member = None

    def _log(self) -> CommitLog:
        return open_log(self._options.url, read_only=False)


def _parsed(options: dict[str, str], url: str, group: str) -> SourceOptions:
    given = {name.lower(): value for name, value in options.items()}
    for name in ("path", "store", "group"):
        if name in given:
            raise InvalidRequestError(
                f"option {name!r}: incremental has an argument for it", option=name
            )
    parsed = parse_source_options({**options, "path": url, "group": check_name("group", group)})
    if parsed.ending is not None or parsed.table is not None:
        option = parsed.ending.option if parsed.ending else "table"
        raise InvalidRequestError(
            f"option {option!r}: leave it out, a group is read from its offsets to the log's end",
            option=option,
        )
    starting = parsed.starting or Bound(option="startingOffsets", word=EARLIEST)
    return replace(parsed, starting=starting)


def _refuse_versions(options: Mapping[str, object]) -> None:
    for option in ("txnAppId", "txnVersion"):
        if option.lower() in map(str.lower, options):
            raise InvalidRequestError(
                f"option {option!r}: leave it out, the group says what is written already. A "
                "version that is known would skip these records, and still move the group",
                option=option,
            )


def _bounds(
    log: CommitLog, state: StoreState, options: SourceOptions
) -> tuple[Positions, StreamOffset]:
    history = history_of(log, state, options.archive)
    begun = known_to_group(state, options.group)
    times = Times(ChunkReader(log.files), SYSTEM.now_us(), history, begun)
    options = bounds_by_offset(options, state, times)
    coverage = cover(state, options, history)
    if not coverage.topics:
        raise NotFoundError("no topic matches: there is nothing to read, not even columns")
    losses = Losses(fail=options.fail_on_data_loss)
    losses.report_missing(coverage.missing)
    starts, ends, _ = admitted(
        coverage,
        (first_of_stream(state, options, coverage, losses), coverage.ends()),
        limits=Limits(records=options.max_offsets_per_trigger, bytes=options.max_bytes_per_trigger),
        losses=losses,
    )
    return starts, StreamOffset(positions=ends, ids=coverage.ids)
