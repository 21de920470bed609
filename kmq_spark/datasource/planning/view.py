"""The columns that a read gives to Spark, of untyped or of typed topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.types import StructType

from kmq_spark.datasource.columns.schema import (
    QUEUE_COLUMNS,
    all_columns,
    spark_schema,
)
from kmq_spark.datasource.columns.typed_schema import (
    METADATA_NAMES,
    check_one_kind,
    chosen,
    chosen_of_all,
    lacking,
    one_schema,
    spark_arrow_schema,
    typed_columns,
    typed_spark_schema,
)
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.state.topic_state import Topic

#: Where a user gives columns that Spark then asks a read for.
COLUMNS_OF_USER = "the columns of schema(...) or of CREATE VIEW name (...) USING kmq"


@dataclass(frozen=True)
class View:
    """The columns of a read, on their way to the executors."""

    arrow: pa.Schema
    #: The columns of typed topics; None for untyped ones.
    columns: StructType | None = None
    #: Whether messages of keyed queues are read with their queues, or for chosen queues only.
    keyed: bool = False

    @property
    def typed(self) -> bool:
        """Whether the topics are typed."""
        return self.columns is not None

    @property
    def prefix(self) -> str:
        """The prefix of metadata columns: a typed topic's own columns have names without it."""
        return "_" if self.typed else ""

    def check(self, topics: Sequence[Topic]) -> None:
        """InvalidRequestError for a topic, perhaps one made since, that lacks these columns."""
        for topic in topics:
            if bool(topic.settings.schemas) != self.typed:
                kinds = ("untyped", "typed") if self.typed else ("typed", "untyped")
                raise InvalidRequestError(
                    f"topic {topic.name} is {kinds[0]}, those of this read are {kinds[1]}: load "
                    "them one by one (if there were none at load(), load again)",
                    topic=topic.name,
                )
            if self.keyed and not topic.settings.keyed:
                raise InvalidRequestError(
                    f"topic {topic.name} has no queues (it is no keyed topic), those of this read "
                    "have: load them one by one",
                    topic=topic.name,
                )
        if self.columns is not None:
            self._check_columns(self.columns, topics)

    @staticmethod
    def _check_columns(wanted: StructType, topics: Sequence[Topic]) -> None:
        """Check each topic by itself: the schemas of several topics are altered one by one."""
        for topic in {topic.settings.schemas: topic for topic in topics}.values():
            lost = lacking(wanted, typed_columns(topic, wanted.names))
            if lost is not None:
                raise InvalidRequestError(
                    f"topic {topic.name} has no column {lost.name!r} of type "
                    f"{lost.dataType.simpleString()}, which this read has: load topics of "
                    "different schemas one by one",
                    topic=topic.name,
                    column=lost.name,
                )


def plain_view(columns: StructType, options: SourceOptions) -> View:
    """Return the view of untyped topics, of which these columns are read."""
    as_queues = options.queues is not None or not QUEUE_COLUMNS.isdisjoint(columns.names)
    return View(spark_arrow_schema(columns), keyed=as_queues)


def _all_keyed(topics: Sequence[Topic], options: SourceOptions) -> bool:
    """Whether all topics are keyed; InvalidRequestError where `queues` chooses and one is not.

    With an archive no topic counts as keyed: its files have keys, but not the messages' indexes.
    """
    if options.archive is not None:
        return False
    others = [topic.name for topic in topics if not topic.settings.keyed]
    if options.queues is not None and others:
        raise InvalidRequestError(
            "option 'queues' is for keyed topics, as store.keyed_queues makes them: "
            f"{', '.join(others)} has no queues",
            option="queues",
        )
    return bool(topics) and not others


def columns_of_read(topics: Sequence[Topic], options: SourceOptions) -> StructType:
    """The columns of these topics; InvalidRequestError when they have not the same."""
    check_one_kind(topics)
    keyed = _all_keyed(topics, options)
    if not _are_typed(topics):
        if topics and options.include_metadata:
            _refuse_metadata()
        return _plain_columns(options, keyed=keyed)
    _refuse_untyped(options)
    if options.columns is not None:
        return _with_included(chosen_of_all(options.columns, topics), options)
    return typed_spark_schema(one_schema(topics), include_metadata=options.include_metadata)


def _plain_columns(options: SourceOptions, *, keyed: bool) -> StructType:
    if options.columns is not None:
        there = all_columns(keyed=keyed)
        return _with_included(chosen(options.columns, there, there.names), options)
    return spark_schema(
        include_headers=options.include_headers,
        include_properties=options.include_properties,
        keyed=keyed,
    )


def _refuse_untyped(options: SourceOptions) -> None:
    untyped = {
        "includeHeaders": options.include_headers,
        "includeProperties": options.include_properties,
    }
    for option, given in untyped.items():
        if given:
            raise InvalidRequestError(
                f"option {option!r} is for untyped topics; a typed topic has its own columns, with "
                "'includeMetadata' also _topic, _partition, _offset and _timestamp, and option "
                "'columns' may name _key, _headers and _properties, too",
                option=option,
            )


def _refuse_metadata() -> NoReturn:
    raise InvalidRequestError(
        "option 'includeMetadata' is for typed topics, and adds _topic, _partition, _offset and "
        "_timestamp; untyped topics have topic, partition, offset and timestamp without it: "
        "leave it out",
        option="includeMetadata",
    )


def _with_included(columns: StructType, options: SourceOptions) -> StructType:
    """Return the chosen columns; InvalidRequestError if they lack what another option asks for."""
    asked_for = {
        "includeHeaders": ("headers",) * options.include_headers,
        "includeProperties": ("properties",) * options.include_properties,
        "includeMetadata": METADATA_NAMES * options.include_metadata,
    }
    for option, names in asked_for.items():
        if missing := [name for name in names if name not in columns.names]:
            raise InvalidRequestError(
                f"option {option!r} asks for {', '.join(missing)}, and option 'columns' leaves "
                f"that out: name it there, or drop {option!r}",
                option=option,
            )
    return columns


def _are_typed(topics: Sequence[Topic]) -> bool:
    return any(topic.settings.schemas for topic in topics)


def view_of(wanted: StructType, topics: Sequence[Topic], options: SourceOptions) -> View:
    """The view of a read that Spark planned for these columns."""
    current = columns_of_read(topics, options)
    if _are_typed(topics):
        _check_chosen(wanted, current)
        return View(spark_arrow_schema(wanted), wanted)
    if wanted.simpleString() != current.simpleString():
        raise InvalidRequestError(f"{_fixed(wanted, current, options)}{_what_is_there(topics)}")
    return plain_view(current, options)


def _fixed(wanted: StructType, current: StructType, options: SourceOptions) -> str:
    """Return what to do about wrong columns of untyped topics: some may be those of load()."""
    loaded = [_plain_columns(options, keyed=keyed).simpleString() for keyed in (False, True)]
    if wanted.simpleString() in loaded:
        return "load again: "
    return (
        f"the columns of untyped topics are fixed ({current.simpleString()}): leave out "
        f"{COLUMNS_OF_USER}, and choose and convert columns by a SELECT. If there are none, load "
        "again: "
    )


def _what_is_there(topics: Sequence[Topic]) -> str:
    if not topics:
        return "the topics that load() saw are gone"
    return f"there are other topics than at load() ({', '.join(each.name for each in topics[:9])})"


def _check_chosen(wanted: StructType, current: StructType) -> None:
    """InvalidRequestError unless these are columns of the read: some, or what it had at load()."""
    if not wanted.fields or len(set(wanted.names)) < len(wanted.names):
        what = "a column twice" if wanted.fields else "no column"
        raise InvalidRequestError(f"schema(...) names {what}: {_choose_of(current)}")
    wrong = lacking(wanted, current)
    if wrong is not None:
        raise InvalidRequestError(
            f"column {wrong.name!r} of type {wrong.dataType.simpleString()} is not one of the "
            f"topic's: {_choose_of(current)}; if there are none, load the topic again",
            column=wrong.name,
        )
    required = next((field for field in wanted.fields if not field.nullable), None)
    if required is not None:
        raise InvalidRequestError(
            f"schema(...) has column {required.name!r} as not null: any column of a kmq read may "
            "be null, make it nullable",
            column=required.name,
        )


def _choose_of(current: StructType) -> str:
    return (
        f"{COLUMNS_OF_USER} can only choose columns of this read, with their types "
        f"({current.simpleString()})"
    )
