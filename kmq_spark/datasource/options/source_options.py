"""The options of a read: parsed once, on the driver, before anything is opened.

Spark hands options over as text under lower-case names. Names and forms are those of Spark's Kafka
source, so that `kafka` becomes `kmq`; an unknown option is refused with a hint. At load() Spark
doesn't tell whether a read is a batch or a stream. So what is wrong for one of the two only is
found by `check_stream` and `warn_of_stream_options`, when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kmq_spark.datasource.columns.tables import TABLES
from kmq_spark.datasource.options import values
from kmq_spark.datasource.options.bounds import (
    GROUP,
    Bound,
    check_fit,
    parse_ending,
    parse_starting,
)
from kmq_spark.datasource.options.known_options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STORE_OPTIONS,
    STREAM_OPTIONS,
    refuse_unknown,
)
from kmq_spark.datasource.options.subscription import Subscription, parse_subscription
from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.refusal import refuse
from kmq_spark.datasource.store_url import beside, storage_options
from kmq_spark.datasource.warning import warn_once
from kmq_storage.errors import InvalidRequestError
from kmq_storage.keyed.wanted import WantedQueues

#: Values of `startingOffsetsByTimestampStrategy`, for a partition without a record that late.
ERROR, LATEST_INSTEAD = "error", "latest"

_MAX_TRIGGER_DELAY = 15 * 60.0


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of a read; None where the default depends on the use."""

    url: str
    subscription: Subscription
    starting: Bound | None = None
    ending: Bound | None = None
    #: Whether a start by time may be after the last record of a partition.
    latest_when_untimed: bool = False
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    #: Seconds after which fewer records than `min_offsets_per_trigger` are read.
    max_trigger_delay: float = _MAX_TRIGGER_DELAY
    tasks: TaskLimits = field(default_factory=TaskLimits)
    #: The columns that are read, in this order; None for all.
    columns: tuple[str, ...] | None = None
    #: Of keyed topics: the queues that are read; None for all.
    queues: WantedQueues | None = None
    include_headers: bool = False
    include_properties: bool = False
    #: Typed topics only: adds columns with each record's topic, partition, offset and timestamp.
    include_metadata: bool = False
    fail_on_data_loss: bool = True
    group: str | None = None
    #: One of TABLES: the store's own state instead of records.
    table: str | None = None
    #: The archive (`kmq archive`) that has the records that are gone from the log.
    archive: str | None = None


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the options of a read; InvalidRequestError names option, value and expectation."""
    given = {name.lower(): value for name, value in options.items()}
    refuse_unknown(given, SOURCE_OPTIONS, SINK_OPTIONS, "read")
    table = values.choice(given, "table", TABLES)
    if table is not None:
        _refuse_beside_table(given)
        return SourceOptions(url=values.store_url(given), subscription=Subscription(), table=table)
    starting, ending, group = _bounds(given)
    least, most = _triggers(given)
    strategy = values.choice(given, "startingOffsetsByTimestampStrategy", (ERROR, LATEST_INSTEAD))
    return SourceOptions(
        url=values.store_url(given),
        subscription=parse_subscription(given),
        starting=starting,
        ending=ending,
        latest_when_untimed=strategy == LATEST_INSTEAD,
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=values.size(given, "maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay=values.seconds(given, "maxTriggerDelay", _MAX_TRIGGER_DELAY),
        tasks=_task_limits(given),
        columns=values.columns(given, "columns"),
        queues=values.queues(given, "queues"),
        include_headers=values.boolean(given, "includeHeaders", default=False),
        include_properties=values.boolean(given, "includeProperties", default=False),
        include_metadata=values.boolean(given, "includeMetadata", default=False),
        fail_on_data_loss=values.boolean(given, "failOnDataLoss", default=True),
        group=group,
        archive=_archive(given),
    )


def _bounds(given: Mapping[str, str]) -> tuple[Bound | None, Bound | None, str | None]:
    """Return where the read begins and ends, and its group."""
    starting, group = parse_starting(given), values.name(given, "group", "group")
    if starting and starting.word == GROUP and group is None:
        refuse(starting.option, GROUP, "an option 'group' that names the group")
    ending = parse_ending(given)
    check_fit(starting, ending)
    return starting, ending, group


def _task_limits(given: Mapping[str, str]) -> TaskLimits:
    return TaskLimits(
        min_partitions=values.whole_number(given, "minPartitions"),
        max_records=values.whole_number(given, "maxRecordsPerPartition"),
        max_bytes=values.size(given, "maxBytesPerPartition"),
    )


def _archive(given: Mapping[str, str]) -> str | None:
    """Return where the archive is, with the store's client options if these apply there."""
    if "archive" not in given:
        return None
    if "queues" in given:
        refuse("queues", given["queues"], "no 'archive' beside it: choose by column 'key' there")
    if not given["archive"].strip():
        refuse("archive", given["archive"], "the folder or URL of the store's archive")
    store = values.store_url(given)
    place = values.absolute_place("archive", given["archive"])
    return beside(place, store, storage_options(store))


def _triggers(given: Mapping[str, str]) -> tuple[int | None, int | None]:
    least = values.whole_number(given, "minOffsetsPerTrigger")
    most = values.whole_number(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        refuse("minOffsetsPerTrigger", str(least), f"at most maxOffsetsPerTrigger ({most})")
    return least, most


def check_stream(options: SourceOptions) -> None:
    """InvalidRequestError for options that only a batch read takes."""
    if options.table is not None:
        raise InvalidRequestError(
            "option 'table' is for batch reads: the store's state is no stream", option="table"
        )
    if options.ending is not None:
        option = options.ending.option
        raise InvalidRequestError(
            f"option {option!r} is for batch reads; a stream has no end", option=option
        )


def warn_of_stream_options(options: Mapping[str, str]) -> None:
    """Log which of the options have no effect on a batch read."""
    given = {name.lower() for name in options}
    for option in STREAM_OPTIONS:
        if option.lower() in given:
            warn_once(f"option {option!r} is for streams: a batch read ignores it")


def _refuse_beside_table(given: Mapping[str, str]) -> None:
    for option in SOURCE_OPTIONS:
        if option.lower() in given and option not in (*STORE_OPTIONS, "table"):
            raise InvalidRequestError(
                f"option {option!r} chooses records, option 'table' the store's own state: "
                "give one of the two",
                option=option,
            )
