"""Administration of topics: create, alter, enlarge and delete them, and find offsets by time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kmq_storage import limits
from kmq_storage.errors import AlreadyExistsError, ConflictError, InvalidRequestError, KmqWarning
from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.evolution import check_evolution, is_same
from kmq_storage.format.records import offset_of_row, timestamps_of
from kmq_storage.format.typed import VERSIONS_MAX, check_schema, declared, encode_schema
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.accounts_topics import check_may_be_trimmed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import ENDS, Chunk, TopicInfo, TopicSettings, decode_schema
from kmq_storage.names import check_name
from kmq_storage.numeric import whole
from kmq_storage.settings import Rule, checked, differences, durations, whole_numbers, words

#: Settings derived from others: schema versions from `schema`, and `trims` from retention.
_FOLLOWING = ("schemas", "trims")
#: The settings that users can set, besides a schema.
_RULES = {
    "retention": durations(optional=True),
    "retention_bytes": whole_numbers(2**62, optional=True),
    "cleanup": words("delete", "compact"),
    "capacity": whole_numbers(2**62, optional=True),
    "max_record_bytes": whole_numbers(limits.RECORD_BYTES_MAX),
    "uniq_window": durations(),
    "compression": words("lz4", "zstd", optional=True),
    "keyed": Rule("True or False", lambda value: value if isinstance(value, bool) else None),
}
_ATTEMPTS = 20
_TIMESTAMPS = frozenset({"timestamp", "_timestamp"})


def create_topic(
    log: CommitLog,
    name: str,
    partitions: int,
    changes: Mapping[str, Any],
    *,
    exist_ok: bool,
    depth: int = 0,
) -> TopicInfo:
    """Create a topic, or keep an existing one if `exist_ok`; a warning names what differs.

    `depth` is how many calls of kmq are between this one and the store's, which users make.
    """
    check_name("topic", name)
    settings = checked_settings(TopicSettings(), changes)
    partitions = _checked_partition_count(name, partitions)
    existing = log.refresh().find_topic(name)
    if existing is None:
        topic_id = log.environment.new_uuid().bytes
        try:
            log.commit([Unit((TopicEntry(topic_id, name, partitions, settings.to_json()),))])
        except AlreadyExistsError:
            if not exist_ok:
                raise
        existing = log.refresh().topic(name)
        if existing.id == topic_id:
            return existing.info()
    if not exist_ok:
        raise AlreadyExistsError(f"Topic[{name}] exists already.", topic=name)
    _warn_of_differences(existing, partitions, settings, depth)
    return existing.info()


def _warn_of_differences(topic: Topic, partitions: int, wanted: TopicSettings, depth: int) -> None:
    kept, asked = _compared(topic.partitions, topic.settings), _compared(partitions, wanted)
    listed = differences(kept, asked)
    if listed:
        warnings.warn(
            f"topic {topic.name} exists and keeps its settings: {', '.join(listed)}; "
            "use alter_topic or add_partitions",
            KmqWarning,
            stacklevel=4 + depth,
        )


def _compared(partitions: int, settings: TopicSettings) -> dict[str, Any]:
    schema = settings.schema
    words = None if schema is None else f"({declared(schema)})"
    values: dict[str, Any] = {"partitions": partitions, "keyed": settings.keyed}
    values |= {**settings.to_json(), "schema": words}
    for name in (*_FOLLOWING, ENDS):
        values.pop(name, None)
    return values


def _checked_partition_count(name: str, partitions: object) -> int:
    """A valid number of partitions; InvalidRequestError for any other value."""
    count = whole(partitions)
    if count is not None and 1 <= count <= limits.PARTITIONS_MAX:
        return count
    raise InvalidRequestError(
        f"topic {name}: partitions must be a whole number from 1 to {limits.PARTITIONS_MAX}, "
        f"not {partitions!r}",
        topic=name,
        partitions=partitions,
    )


def alter_topic(log: CommitLog, name: str, changes: Mapping[str, Any]) -> TopicInfo:
    """Change the given settings of a topic; others stay."""

    def altered(topic: Topic) -> TopicEntry:
        if changes.get("retention") is not None or changes.get("retention_bytes") is not None:
            check_may_be_trimmed(log.state, topic)
        settings = checked_settings(topic.settings, changes, topic=name)
        return TopicEntry(topic.id, name, topic.partitions, settings.to_json())

    return _redefine(log, name, altered)


def add_partitions(log: CommitLog, name: str, total: int) -> TopicInfo:
    """Enlarge a topic to this many partitions; InvalidRequestError for fewer than it has."""
    total = _checked_partition_count(name, total)

    def enlarged(topic: Topic) -> TopicEntry:
        if topic.settings.keyed and total > topic.partitions:
            raise InvalidRequestError(
                f"topic {name} has keyed queues, which stay in one partition", topic=name
            )
        return TopicEntry(topic.id, name, total, topic.settings.to_json())

    return _redefine(log, name, enlarged)


def _redefine(log: CommitLog, name: str, change: Callable[[Topic], TopicEntry]) -> TopicInfo:
    """Commit a new definition of a topic; try again when its schema changed meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            found = log.written_state().topic(check_name("topic", name))
            log.commit([Unit((change(found),))])
            break
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    return log.refresh().topic(name).info()


def delete_topic(log: CommitLog, name: str) -> bytes:
    """Delete a topic and all groups' offsets in it; returns its id, which no later topic has."""
    topic = log.refresh().topic(check_name("topic", name))
    log.commit([Unit((TopicEntry(topic.id, name, 0, {}),))])
    return topic.id


def checked_settings(
    current: TopicSettings, changes: Mapping[str, Any], *, topic: str | None = None
) -> TopicSettings:
    """The settings with these changes; InvalidRequestError names a setting that is wrong.

    `topic` is the name of an existing topic, whose schema can only evolve.
    """
    if "partitions" in changes:
        raise InvalidRequestError(
            "partitions is no setting to alter: use add_partitions", setting="partitions"
        )
    if "keyed" in changes and topic is not None:
        raise InvalidRequestError(
            f"topic {topic} was made {'with' if current.keyed else 'without'} keyed queues and "
            "stays so",
            setting="keyed",
        )
    schema = Rule("a pyarrow.Schema", partial(_schemas, current, topic))
    settings = checked("topic", changes, {**_RULES, "schema": schema})
    if "schema" in settings:
        settings["schemas"] = settings.pop("schema")
    return _fitting(replace(current, **settings))


def _fitting(settings: TopicSettings) -> TopicSettings:
    """The settings, checked and completed for a topic with keyed queues."""
    if not settings.keyed:
        return settings
    losing = {
        "cleanup": settings.cleanup != "delete",
        "schema": bool(settings.schemas),
    }
    for name, is_set in losing.items():
        if is_set:
            raise InvalidRequestError(
                f"a topic with keyed queues keeps all messages as they are: it has no {name}",
                setting=name,
            )
    keeps_all = settings.retention is None and settings.retention_bytes is None
    return settings if keeps_all else replace(settings, trims=True)


def _schemas(current: TopicSettings, topic: str | None, schema: Any) -> tuple[str, ...]:
    """The versions of a topic's schema, with this one as the newest."""
    check_schema(schema)
    encoded = encode_schema(schema)
    if topic is None:
        return (encoded,)
    schema = decode_schema(encoded)  # Arrow forgets how a map calls its keys and values
    newest = current.schema
    if newest is None:
        raise InvalidRequestError(
            f"topic {topic} is untyped and stays so: make another topic with this schema",
            setting="schema",
            topic=topic,
        )
    if newest == schema and all(map(is_same, newest.types, schema.types)):
        return current.schemas
    check_evolution(topic, newest, schema)
    if len(current.schemas) == VERSIONS_MAX:
        raise InvalidRequestError(
            f"the schema of topic {topic} has changed {VERSIONS_MAX} times, no more fit",
            setting="schema",
            topic=topic,
        )
    return (*current.schemas, encoded)


def offsets_for_time(log: CommitLog, name: str, microseconds: int) -> dict[int, int | None]:
    """For each partition, the first offset with this timestamp (UTC us) or a later one, or None."""
    reader = ChunkReader(log.files)

    def found(state: StoreState) -> dict[int, int | None]:
        topic = state.topic(name)
        return {
            number: first_offset_since(topic, number, microseconds, reader)
            for number in range(topic.partitions)
        }

    return looking_again(log, found)


def first_offset_since(
    topic: Topic, number: int, microseconds: int, reader: ChunkReader
) -> int | None:
    """The first offset of a partition with this timestamp (UTC us) or a later one."""
    part, index = topic.partition(number), topic.index(number)
    start = part.first
    while (row := index.first_since(microseconds, start, part.end)) is not None:
        for chunk in reader.chunks(row.place((topic.id, number)), topic.name, number):
            if chunk.max_timestamp >= microseconds and chunk.end_offset > start:
                found = _first_in_chunk(topic, number, chunk, (microseconds, start), reader)
                if found is not None:
                    return found
        start = row.end_offset  # its records that are new enough were trimmed
    return None


def _first_in_chunk(
    topic: Topic, number: int, chunk: Chunk, since: tuple[int, int], reader: ChunkReader
) -> int | None:
    """The first offset in a chunk at or after both a timestamp and an offset."""
    timestamp, start = since
    batch = reader.read(
        chunk,
        start,
        chunk.end_offset,
        topic=topic.name,
        partition=number,
        layout=topic.layout(_TIMESTAMPS),
    )
    at = np.flatnonzero(np.from_dlpack(timestamps_of(batch)) >= timestamp)
    if not len(at):
        return None
    return offset_of_row(batch, max(start, chunk.base_offset), int(at[0]))
