"""Positions in text: what users give as bounds, and what Spark keeps in its checkpoint.

Both have the form of Spark's Kafka source, `{"orders": {"0": 23, "1": 7}}`, where an offset is
the next one to read. Spark compares a stream's offsets as text, so equal positions must give
equal text: names are sorted, and so are partitions, by number. An offset of ours adds one entry,
under a key that no topic can have:

    "#kmq": {"first": {...}, "ids": {"orders": "3f0e..."}, "version": 1}

`ids` tells a topic from a later one of the same name. `first` is where the first batch begins:
Spark remembers only where it ends (docs/design/spark-first-offset.md).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kmq_spark.datasource.refusal import refuse
from kmq_storage.errors import FormatVersionError, InvalidRequestError

EARLIEST, LATEST, GROUP = "earliest", "latest", "group"

#: Kafka's numbers for the two ends of a partition.
OFFSET_EARLIEST, OFFSET_LATEST = -2, -1

#: Offset by partition by topic.
Positions = Mapping[str, Mapping[int, int]]

_OWN_KEY = "#kmq"
_VERSION = 1
_EXAMPLE = 'JSON such as {"orders":{"0":23,"1":-1}} (-2 is earliest, -1 latest)'


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Where a read begins or ends: one word for all partitions, or an offset for each of them."""

    word: str | None = None
    offsets: Positions = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """How far a stream is: positions, the ids of their topics, and where the stream began.

    Without ids it is the start of a stream, whose place is not resolved yet.
    """

    positions: Positions = field(default_factory=dict)
    ids: Mapping[str, uuid.UUID] | None = None
    first: Positions | None = None

    @property
    def is_start(self) -> bool:
        """Whether the stream has not read anything and its first place is still open."""
        return self.ids is None

    def to_json(self) -> dict[str, Any]:
        """The canonical form: equal offsets give equal text."""
        own: dict[str, Any] = {"version": _VERSION}
        if self.ids is not None:
            own["ids"] = {topic: str(self.ids[topic]) for topic in sorted(self.ids)}
        if self.first is not None:
            own["first"] = _to_json(self.first)
        return {_OWN_KEY: dict(sorted(own.items())), **_to_json(self.positions)}


def parse_bound(option: str, given: Mapping[str, str], words: tuple[str, ...]) -> Bound | None:
    """A bound from an option, or InvalidRequestError; None when the option is not given."""
    text = given.get(option.lower())
    if text is None:
        return None
    if text.strip().lower() in words:
        return Bound(word=text.strip().lower())
    if not text.lstrip().startswith("{"):
        refuse(option, text, f"{', '.join(map(repr, words))} or {_EXAMPLE}")
    lowest = OFFSET_EARLIEST if EARLIEST in words else OFFSET_LATEST
    return Bound(offsets=_positions_of_option(option, text, lowest))


def parse_stream_offset(data: Mapping[str, Any]) -> StreamOffset:
    """What a checkpoint holds, or FormatVersionError for the offset of a newer kmq."""
    own = data.get(_OWN_KEY)
    version = own.get("version") if isinstance(own, dict) else None
    if not isinstance(own, dict) or not isinstance(version, int):
        raise InvalidRequestError(f"offset {json.dumps(data)} was not written by kmq")
    if version > _VERSION:
        raise FormatVersionError(
            f"offset was written by a newer kmq: its version is {version}, known up to {_VERSION}",
            version=version,
        )
    return StreamOffset(
        positions=_from_json({name: data[name] for name in data if name != _OWN_KEY}),
        ids={name: uuid.UUID(text) for name, text in own["ids"].items()} if "ids" in own else None,
        first=_from_json(own["first"]) if "first" in own else None,
    )


def _to_json(positions: Positions) -> dict[str, dict[str, int]]:
    return {
        topic: {str(p): positions[topic][p] for p in sorted(positions[topic])}
        for topic in sorted(positions)
    }


def _from_json(data: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): offset for p, offset in data[topic].items()} for topic in data}


def _positions_of_option(option: str, text: str, lowest: int) -> dict[str, dict[int, int]]:
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        refuse(option, text, f"{_EXAMPLE}: {problem}")
    parsed.pop(_OWN_KEY, None)  # an offset copied from a query's progress is welcome
    for topic, offsets in parsed.items():
        if not isinstance(offsets, dict):
            refuse(option, text, _EXAMPLE)
        for partition, offset in offsets.items():
            if not (partition.isascii() and partition.isdigit()) or type(offset) is not int:
                refuse(option, text, _EXAMPLE)
            if offset < lowest:
                what = "earliest" if offset == OFFSET_EARLIEST else str(offset)
                refuse(option, text, f"no {what} for {topic}[{partition}]; use {_EXAMPLE}")
    return _from_json(parsed)
