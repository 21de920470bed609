"""The columns of an archive.

Those that say where a record was come first, since Delta keeps statistics of its first columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from kmq_spark.lake.record import DELTA, PARQUET, ArchiveRecord
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.typed import stored_type
from kmq_storage.log.state.store_state import StoreState

_METADATA = ("topic", "topicId", "partition", "offset", "timestamp")
_RECORD = ("key", "value", "headers", "properties")


#: What no name of a Delta column may contain, unless the files have other names (column mapping).
_NOT_IN_DELTA = " ,;{}()\n\t="


def check_columns(
    fields: Sequence[pa.Field],
    file_format: str,
    *,
    case_sensitive: bool = False,
    times_of_day: bool = False,
) -> None:
    """InvalidRequestError when the archive's format has no columns of such names or types.

    `case_sensitive`: whether Spark takes `a` and `A` for two; Delta never does. `times_of_day`:
    whether Spark has a type for them.
    """
    is_delta, names = file_format == DELTA, [field.name for field in fields]
    wrong = [name for name in names if set(name) & set(_NOT_IN_DELTA)]
    if is_delta and wrong:
        raise InvalidRequestError(
            f"column {wrong[0]!r}: Delta has no columns with any of {_NOT_IN_DELTA!r} in their "
            "names; archive into Parquet (file_format='parquet'), or rename the column",
            column=wrong[0],
        )
    if is_delta or not case_sensitive:
        _refuse_letter_case(names, file_format)
    for field in fields:
        _refuse_type(field, is_delta=is_delta, times_of_day=times_of_day)


def check_folder_columns(fields: Sequence[pa.Field], record: ArchiveRecord) -> None:
    """InvalidRequestError for a column with the name of one that is in the names of folders."""
    folders = {*record.partitioned_by, *(["batch"] if record.format == PARQUET else [])}
    for field in fields:
        if field.name.lower() in folders:
            raise InvalidRequestError(
                f"column {field.name!r} has the name of a column that the archive itself has; "
                "archive into Delta (file_format='delta'), or copy the records into a topic with "
                "other names",
                column=field.name,
            )


def _refuse_type(field: pa.Field, *, is_delta: bool, times_of_day: bool) -> None:
    kind, types = field.type, pa.types
    what, instead = "", "archive into Parquet (file_format='parquet')"
    if types.is_struct(kind) and not kind.num_fields:
        what, instead = "no file has structs without fields", "give it one (alter_topic)"
    elif types.is_time(kind) and not times_of_day:
        what = "Spark has times of day only where spark.sql.timeType.enabled is true"
        instead = "set that in the session that archives, into Parquet (file_format='parquet')"
    elif is_delta and (types.is_duration(kind) or types.is_time(kind)):
        what = f"Delta has no {'times of day' if types.is_time(kind) else 'durations'}"
    elif is_delta and not types.is_struct(kind) and any(map(_holds_null, _children(kind))):
        what = "Delta has no lists or maps of nulls"
    elif is_delta and types.is_struct(kind) and all(map(_is_null, _children(kind))):
        what = "Delta has no structs of nulls alone"
    if what:
        raise InvalidRequestError(
            f"column {field.name!r}: {what}; {instead}, or copy the records into a topic with "
            "another type",
            column=field.name,
        )


def _is_null(field: pa.Field) -> bool:
    kind = field.type
    return pa.types.is_null(kind) or (
        pa.types.is_struct(kind) and all(map(_is_null, _children(kind)))
    )


def _holds_null(field: pa.Field) -> bool:
    return pa.types.is_null(field.type) or any(map(_holds_null, _children(field.type)))


def _children(kind: pa.DataType) -> Iterator[pa.Field]:
    return (kind.field(n) for n in range(kind.num_fields))


def _refuse_letter_case(names: Iterable[str], file_format: str) -> None:
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            who = "Delta" if file_format == DELTA else "Spark"
            raise InvalidRequestError(
                f"columns {other!r} and {name!r}: {who} does not tell them apart by letter case; "
                "archive into Parquet (file_format='parquet') in a session with "
                "spark.sql.caseSensitive=true, or copy the records into a topic with other names",
                column=name,
            )


def fields_of(state: StoreState, record: ArchiveRecord) -> list[pa.Field]:
    """Return the topics' own columns, and fields nested in them under names as `column.name`."""
    own = _schema(state, record) if record.typed else ()
    return list(_fields(field.with_type(stored_type(field.type)) for field in own))


def _fields(fields: Iterable[pa.Field], inside: str = "") -> Iterator[pa.Field]:
    for field in fields:
        named = field.with_name(inside + field.name)
        yield named
        yield from _fields(_children(field.type), f"{named.name}.")


def columns_of(state: StoreState, record: ArchiveRecord) -> list[str]:
    """Return the columns that the job reads; it adds the day that a record belongs to."""
    metadata = [record.column(name) for name in _METADATA]
    if not record.typed:
        return [*metadata, *_RECORD]
    return [
        *metadata,
        *_schema(state, record).names,
        *(f"_{name}" for name in _RECORD if name != "value"),
    ]


def _schema(state: StoreState, record: ArchiveRecord) -> pa.Schema:
    schema = state.topic(record.topics[0]).settings.schema
    assert schema is not None, "a typed topic has a schema"
    return schema
