"""What a job of an archive begins with: a record that is new, or that fits what was asked for."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace

from kmq_spark.client.handles.arguments import check_choice
from kmq_spark.client.store import Store
from kmq_spark.datasource.columns.typed_schema import typed_spark_schema
from kmq_spark.datasource.store_url import storage_options
from kmq_spark.lake.columns import check_columns, check_folder_columns, fields_of
from kmq_spark.lake.places import ArchivePlace, fixed
from kmq_spark.lake.record import (
    DELTA,
    PARQUET,
    SEEN_FOLDERS,
    ArchiveRecord,
    ArchiveRecords,
)
from kmq_storage.errors import IllegalStateError, InvalidRequestError, NotFoundError
from kmq_storage.log.state.store_state import StoreState

#: What delta-rs takes for another place.
_NOT_IN_DELTA = re.compile(r"%[0-9a-fA-F]{2}|\\")

#: The most bytes that file systems take as the name of a folder.
_FOLDER_BYTES = 255


def begin(
    store: Store,
    path: str,
    topics: Sequence[str],
    file_format: str | None,
    *,
    else_format: str,
    fail_on_data_loss: bool,
    case_sensitive: bool = False,
    times_of_day: bool = False,
) -> ArchiveRecord:
    """Return the record of the archive that the job goes on from, published before it writes.

    `case_sensitive`, `times_of_day`: whether the session that writes distinguishes columns by
    letter case, and has a type for times of day.
    """
    if file_format is not None:
        check_choice("file_format", file_format, (DELTA, PARQUET))
    place = ArchivePlace(path, storage_options(path))
    records = ArchiveRecords(place)
    known = records.newest()
    if known is None:
        _refuse_inside(place, store.url)
        _refuse_unreadable(place, file_format or else_format)
    state = store.log.refresh()
    record = known or _new(store, state, topics, file_format or else_format)
    record.check_store(path, store.log.identity.store_id)
    _check_format(path, record, file_format)
    if record.format == DELTA and else_format != DELTA:
        raise InvalidRequestError(
            f"archive {path} is to be in Delta, which this session of Spark doesn't have: start it "
            "with Delta's jars and settings (delta.configure_spark_with_delta_pip), or make a new "
            "archive with file_format='parquet'",
            option="file_format",
        )
    if known is not None and not records.has_checkpoint(known) and _has_archived(state, known):
        raise IllegalStateError(
            f"archive {path} has lost the checkpoint of its job ({known.checkpoint}), and nothing "
            "else tells which batches were written: archive into a new place"
        )
    if fail_on_data_loss:
        _refuse_less(path, state, record, topics)
    if not topics:
        _refuse_deleted(path, state, record)
    grown = _grown(state, record, topics)
    _refuse_unknown(state, grown)
    fields = fields_of(state, grown)
    check_folder_columns(fields, grown)
    check_columns(fields, grown.format, case_sensitive=case_sensitive, times_of_day=times_of_day)
    _check_folders(place, grown)
    if grown != known:
        records.add(grown)
    return grown


def _new(store: Store, state: StoreState, topics: Sequence[str], file_format: str) -> ArchiveRecord:
    if not topics:
        raise InvalidRequestError("a new archive needs the names of its topics", option="topics")
    new_id = store.log.environment.new_uuid().hex
    typed = state.topic(topics[0]).settings.schema is not None
    return ArchiveRecord(
        store_id=str(store.log.identity.store_id),
        format=file_format,
        group=f"archive-{new_id[:12]}",
        checkpoint=new_id,
        topics=tuple(sorted(topics)),
        typed=typed,
        folders=SEEN_FOLDERS if typed and file_format == PARQUET else None,
    )


def _refuse_inside(place: ArchivePlace, store: str) -> None:
    """InvalidRequestError for an archive in the store's folder, where files get collected."""
    inner, outer = (_real(fixed(each)) for each in (place.url, store))
    if f"{inner}/".startswith(f"{outer}/"):
        raise InvalidRequestError(
            f"archive {place.url} is inside of the store {store}, whose maintenance deletes files "
            "that it doesn't know: choose a place outside of the store",
            option="archive",
        )


def _refuse_unreadable(place: ArchivePlace, file_format: str) -> None:
    """InvalidRequestError for a place that Spark writes to, but that is not read back by its name.

    To fsspec `::` joins two URLs.
    """
    wrong = _NOT_IN_DELTA.findall(place.url) if file_format == DELTA else []
    if "::" in place.url and not place.in_bucket:
        wrong.append("::")
    if wrong:
        raise InvalidRequestError(
            f"archive {place.url} in {file_format} could not be read back, because of {wrong[0]!r} "
            "in its name: choose another place",
            option="archive",
        )


def _real(place: str) -> str:
    return place if "://" in place else os.path.realpath(place)


def _check_format(path: str, record: ArchiveRecord, file_format: str | None) -> None:
    if file_format not in (None, record.format):
        raise InvalidRequestError(
            f"archive {path} is in {record.format}; leave file_format out, or choose another place",
            option="file_format",
        )


def _refuse_less(
    path: str, state: StoreState, record: ArchiveRecord, topics: Sequence[str]
) -> None:
    # The stream reports deleted topics: it knows what went unread of them.
    less = [name for name in record.topics if name not in topics and state.find_topic(name)]
    if topics and less:
        raise InvalidRequestError(
            f"archive {path} has topics {', '.join(less)}, too: name them as well, or none at all; "
            "with fail_on_data_loss=False they stay as they are until they are named again",
            option="topics",
        )


def _refuse_deleted(path: str, state: StoreState, record: ArchiveRecord) -> None:
    """NotFoundError for a topic of the archive that isn't there, with how the others go on."""
    for name in record.topics:
        try:
            state.topic(name)
        except NotFoundError as error:
            raise NotFoundError(
                f"{error.message} Archive {path} has it, too: name the other topics (topics=[...], "
                "kmq archive --topic) to go on without it. What went unread of it is a loss: "
                "continue past that by fail_on_data_loss=False (kmq archive --skip-lost)",
                **error.context,
            ) from None


def _grown(state: StoreState, record: ArchiveRecord, topics: Sequence[str]) -> ArchiveRecord:
    """The record with these topics instead, and with where the new ones of them begin."""
    names = tuple(sorted(topics)) or record.topics
    found = [state.topic(name) for name in names]
    starts = dict(record.starts)
    for topic in found:
        if (topic.settings.schema is not None) != record.typed:
            raise InvalidRequestError(
                f"topic {topic.name} is {'untyped' if record.typed else 'typed'}, the others of "
                "the archive are not: archive it into a place of its own",
                topic=topic.name,
            )
        if topic.settings.schema != found[0].settings.schema:
            raise InvalidRequestError(
                f"topics {found[0].name} and {topic.name} have different schemas: archive them "
                "into places of their own, or give both the same columns (alter_topic)",
                topic=topic.name,
            )
        begins = {p: start for p, (start, _) in topic.offsets().items() if start}
        starts.setdefault(topic.topic_id.hex, begins)
    return replace(record, topics=names, starts=starts)


def _refuse_unknown(state: StoreState, record: ArchiveRecord) -> None:
    """InvalidRequestError for a column that Spark has no type for."""
    schema = state.topic(record.topics[0]).settings.schema
    if schema is not None:
        typed_spark_schema(schema, include_metadata=False)


def _check_folders(place: ArchivePlace, record: ArchiveRecord) -> None:
    """InvalidRequestError when a topic's folder can't be made: Spark writes `%` as three bytes."""
    for topic in () if place.in_bucket else record.topics:
        folder = f"{record.partitioned_by[0]}={topic.replace('%', '%25')}"
        if len(folder) > _FOLDER_BYTES:
            raise InvalidRequestError(
                f"topic {topic}: its folder in archive {place.url} would be {folder}, "
                f"{len(folder)} bytes of the {_FOLDER_BYTES} that a file system takes; archive it "
                "into a bucket",
                topic=topic,
            )


def _has_archived(state: StoreState, record: ArchiveRecord) -> bool:
    return any(
        offset > record.start(uuid.UUID(bytes=topic_id), partition)
        for topic_id, offsets in state.group_offsets(record.group).items()
        for partition, offset in offsets.items()
    )
