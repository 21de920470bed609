"""The options of the format `kmq`: parsed once, on the driver, before anything is opened.

Spark hands them over as text under lower-cased names. Names and forms are those of Spark's Kafka
source, so that `kafka` becomes `kmq`; whatever is not known is refused with a hint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kmq_spark.datasource.offsets import EARLIEST, GROUP, LATEST, Bound, parse_bound
from kmq_spark.datasource.refusal import refuse
from kmq_spark.datasource.store_url import is_storage_option, with_storage_options
from kmq_spark.datasource.subscription import Subscription, parse_subscription
from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import check_name, nearest

SOURCE_OPTIONS = (
    "path",
    "store",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "includeMetadata",
    "failOnDataLoss",
    "group",
)

#: Kafka's sink documents includeHeaders; a headers column is written with and without it.
SINK_OPTIONS = ("path", "store", "topic", "includeHeaders")

#: What Spark itself adds to the options of a streaming sink.
_SPARKS_OWN = ("checkpointlocation", "queryname")

_KAFKA_REPLACEMENTS = {
    "kafka.bootstrap.servers": "kmq has no brokers: give the store as load(path) or option 'path'",
    "kafka.group.id": "use option 'group'",
    "kafka.isolation.level": "kmq readers see committed records only: remove it",
    "kafka.auto.offset.reset": "use option 'startingOffsets'",
    "kafka.enable.auto.commit": "use option 'group': finished batches are committed to it",
    "kafka.partitioner.class": "use a 'partition' column",
}


_WHOLE_NUMBER = re.compile(r"[0-9]{1,19}\Z")
#: Spark holds numbers of rows in a signed 64-bit integer.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a read was asked for; None where an option has a default that depends on its use."""

    url: str
    subscription: Subscription
    starting: Bound | None
    ending: Bound | None
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    include_headers: bool
    #: For typed topics: where each record stands, beside its own columns.
    include_metadata: bool
    fail_on_data_loss: bool
    group: str | None


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """What a write was asked for."""

    url: str
    topic: str | None


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a read, or InvalidRequestError that names option, value and expectation."""
    given = _lower_cased(options)
    _refuse_unknown(given, SOURCE_OPTIONS, SINK_OPTIONS, "read")
    group = given.get("group")
    starting = parse_bound("startingOffsets", given, (EARLIEST, LATEST, GROUP))
    if starting and starting.word == GROUP and group is None:
        refuse("startingOffsets", GROUP, "an option 'group' that names the group")
    return SourceOptions(
        url=_url(given),
        subscription=parse_subscription(given),
        starting=starting,
        ending=parse_bound("endingOffsets", given, (LATEST,)),
        max_offsets_per_trigger=_whole_number(given, "maxOffsetsPerTrigger"),
        min_partitions=_whole_number(given, "minPartitions"),
        include_headers=_boolean(given, "includeHeaders", default=False),
        include_metadata=_boolean(given, "includeMetadata", default=False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        group=None if group is None else check_name("group", group),
    )


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, or InvalidRequestError that names option, value and expectation."""
    given = _lower_cased(options)
    for name in _SPARKS_OWN:
        given.pop(name, None)
    _refuse_unknown(given, SINK_OPTIONS, SOURCE_OPTIONS, "write")
    _boolean(given, "includeHeaders", default=False)
    topic = given.get("topic")
    return SinkOptions(url=_url(given), topic=None if topic is None else check_name("topic", topic))


def _lower_cased(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _refuse_unknown(
    given: Iterable[str], known: Iterable[str], other_side: Iterable[str], use: str
) -> None:
    known_names = {name.lower(): name for name in known}
    other_names = {name.lower(): name for name in other_side}
    for name in given:
        if name in known_names or is_storage_option(name):
            continue
        if name in other_names:
            other = "write" if use == "read" else "read"
            raise InvalidRequestError(
                f"option {other_names[name]!r} belongs to a {other}, not to a {use}", option=name
            )
        raise InvalidRequestError(
            f"option {name!r} is unknown{_hint(name, known_names)}", option=name
        )


def _hint(name: str, known_names: Mapping[str, str]) -> str:
    if name.startswith("kafka."):
        return "; " + _KAFKA_REPLACEMENTS.get(name, "kmq has no Kafka client to pass it to")
    near = nearest(name, known_names)
    for lower, proper in known_names.items():
        near = near.replace(repr(lower), repr(proper))
    return near or f"; known are {', '.join(known_names.values())}"


def _url(given: Mapping[str, str]) -> str:
    path, store = given.get("path"), given.get("store")
    if path and store and path != store:
        refuse("store", store, f"the same place as 'path' ({path!r}), or only one of the two")
    url = path or store
    if not url:
        raise InvalidRequestError(
            "the store is missing: name its folder as load(path), save(path) or option 'path'",
            option="path",
        )
    if url.startswith("memory://"):
        refuse("path", url, "a folder: a store in memory is seen by one process, Spark has several")
    # Fixed here, on the driver: an executor may run in another folder.
    url = url if "://" in url else os.path.abspath(os.path.expanduser(url))
    return with_storage_options(url, given)


def _whole_number(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    if not _WHOLE_NUMBER.match(text) or not 1 <= int(text) <= _LARGEST:
        refuse(option, text, "a whole number of at least 1")
    return int(text)


def _boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        refuse(option, text, "true or false")
    return text.lower() == "true"
