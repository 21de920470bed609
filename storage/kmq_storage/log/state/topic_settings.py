"""The settings of a topic as the log has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kmq_storage.errors import FormatVersionError
from kmq_storage.model import ENDS, TopicSettings


def settings_of(topic: str, members: Mapping[str, Any]) -> TopicSettings:
    """The settings of a topic from their JSON object; FormatVersionError for unknown ones."""
    known = {name: value for name, value in members.items() if name != ENDS}
    try:
        return TopicSettings(**{**known, "schemas": _shared(tuple(members.get("schemas", ())))})
    except TypeError as error:
        raise FormatVersionError(
            f"topic {topic} has settings that this version of kmq does not know ({error}); "
            "read the store with a newer kmq",
            topic=topic,
        ) from error


@lru_cache(maxsize=1024)
def _shared(schemas: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same object for equal schemas.

    Thousands of topics may have the same schemas, and tasks are sent the settings of each topic.
    """
    return schemas
