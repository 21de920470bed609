"""What a producer knows of a typed topic: its columns, their stored types, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa

from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.typed import stored_columns
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import decode_schema

T = TypeVar("T")


class TypedColumns:
    """The own columns of a topic as its newest schema has them."""

    def __init__(self, schemas: tuple[str, ...]) -> None:
        from kmq_spark.client.typed.values import RowChecker  # loaded when there is a typed topic

        #: The versions of the schema: what tells this definition from another.
        self.schemas = schemas
        self.declared: pa.Schema = decode_schema(schemas[-1])
        #: The same columns in stored types.
        self.stored = stored_columns(self.declared)
        self.checker = RowChecker(self.declared)

    @property
    def version(self) -> int:
        """The newest version, counted from 1."""
        return len(self.schemas)


@lru_cache(maxsize=256)
def _columns_of(schemas: tuple[str, ...]) -> TypedColumns:
    return TypedColumns(schemas)


def typed_columns(topic: Topic | None) -> TypedColumns | None:
    """The own columns of a topic; None for an untyped topic, and for none."""
    schemas = topic.settings.schemas if topic is not None else ()
    return _columns_of(schemas) if schemas else None


def checked_with_known(log: CommitLog, name: str, check: Callable[[Topic | None], T]) -> T:
    """Check something against what is known of a topic; look again before refusing it.

    The topic may have been made or changed since; None stands for one that is not known.
    """
    topic = (
        log.known_state.find_topic(name)
        or log.state.find_topic(name)
        or log.written_state().find_topic(name)
    )
    try:
        return check(topic)
    except InvalidRequestError:
        settings = None if topic is None else topic.settings
        now = log.written_state().find_topic(name)
        if now is None or now.settings == settings:
            raise
        return check(now)
