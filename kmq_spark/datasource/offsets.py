"""The offsets of a stream as text, which Spark keeps in its checkpoint.

They have the form of Spark's Kafka source, `{"orders": {"0": 23, "1": 7}}`, where an offset is
the next one to read. Spark compares a stream's offsets as text, so equal positions must give
equal text: names are sorted, and so are partitions, by number. An offset of ours adds one entry,
under a key that no topic can have:

    "#kmq": {"deleted": "c20d...", "first": {...}, "ids": {"orders": "3f0e..."}, "version": 1}

- `ids` tells a topic from a later one of the same name.
- `first` is where the first batch begins: Spark remembers only where it ends
  (docs/design/spark-first-offset.md). In later offsets it has the partitions that are new to the
  query and that its group had read, and where the query begins there.
- `query` identifies a query that has a group: Spark doesn't tell a source which query it is of
  (docs/design/spark-groups.md).
- `left` has the positions, by topic id, of partitions that the query had read and its options leave
  out now. The query goes on there when the options cover them again.
- `deleted` is the id of the topic that had been deleted last. A topic that was deleted after it and
  is not in `ids` came and went unseen. Older versions wrote none.
- `lost` is how many records the query has lost so far, over all its runs. In the offset it is
  counted once, whatever dies: the batch and its count are planned and finished together.
- `losses` has, by topic id and partition, the ranges that the last batch added to it. A run that
  replays the batch finds them again, and must not add them again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kmq_storage.errors import FormatVersionError, InvalidRequestError

#: Offset by partition by topic.
Positions = Mapping[str, Mapping[int, int]]
#: Ranges of lost records, in order, by topic id and partition.
Lost = Mapping[tuple[uuid.UUID, int], tuple[tuple[int, int], ...]]
#: A partition's number as text, cached: all batches of a query name the same partitions.
_text = lru_cache(maxsize=1 << 16)(str)

#: Stands for the topic that was deleted last, while none was.
NONE_DELETED = uuid.UUID(int=0)
#: No topic can be called that.
OWN_KEY = "#kmq"
_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StreamOffset:
    """The position of a stream: offsets, the ids of their topics, and where new ones began.

    Without ids it is the start of a stream whose first position isn't resolved yet.
    """

    positions: Positions = field(default_factory=dict)
    ids: Mapping[str, uuid.UUID] | None = None
    first: Positions | None = None
    #: Positions of partitions that the options leave out now; they may be covered again.
    left: Mapping[uuid.UUID, Mapping[int, int]] = field(default_factory=dict)
    #: The topic that had been deleted last; None where it wasn't noted.
    deleted: uuid.UUID | None = None
    #: How many records were lost before this offset.
    lost: int = 0
    #: The part of it that the batch which it ends has added.
    losses: Lost = field(default_factory=dict)
    #: The query's id, if it has a group: the same in all runs of one checkpoint.
    query: uuid.UUID | None = None

    @property
    def is_start(self) -> bool:
        """Whether the stream has read nothing yet, and where it begins is not decided."""
        return self.ids is None

    def to_json(self) -> dict[str, Any]:
        """Return the canonical form: equal offsets give equal text."""
        own: dict[str, Any] = {"version": _VERSION}
        if self.ids is not None:
            own["ids"] = {topic: str(self.ids[topic]) for topic in sorted(self.ids)}
        if self.first is not None:
            own["first"] = _to_json(self.first)
        if self.left:
            own["left"] = _to_json({str(topic_id): at for topic_id, at in self.left.items()})
        if self.deleted is not None:
            own["deleted"] = str(self.deleted)
        if self.losses:
            own["losses"] = _losses_to_json(self.losses)
        if self.lost:
            own["lost"] = self.lost
        if self.query is not None:
            own["query"] = str(self.query)
        return {OWN_KEY: dict(sorted(own.items())), **_to_json(self.positions)}


def parse_stream_offset(data: Any) -> StreamOffset:
    """Return the offset in a checkpoint; FormatVersionError for one of a newer kmq."""
    own = data.get(OWN_KEY) if isinstance(data, dict) else None
    version = own.get("version") if isinstance(own, dict) else None
    if not isinstance(own, dict) or not isinstance(version, int):
        raise InvalidRequestError(
            f"offset {json.dumps(data)[:200]} was not written by kmq: the checkpoint is that of a "
            "query on another source, such as Kafka, whose offsets count in its own log. Give "
            "this query a checkpointLocation of its own; it begins at startingOffsets or "
            "startingTimestamp, or where its group is"
        )
    if version > _VERSION:
        raise FormatVersionError(
            f"offset was written by a newer kmq: its version is {version}, known up to {_VERSION}",
            version=version,
        )
    losses = _losses_from_json(own.get("losses", {}))
    return StreamOffset(
        positions=_from_json({name: data[name] for name in data if name != OWN_KEY}),
        ids={name: uuid.UUID(text) for name, text in own["ids"].items()} if "ids" in own else None,
        first=_from_json(own["first"]) if "first" in own else None,
        left={uuid.UUID(key): at for key, at in _from_json(own.get("left", {})).items()},
        deleted=uuid.UUID(own["deleted"]) if "deleted" in own else None,
        lost=own.get("lost", records_of(losses)),  # older versions wrote no sum
        losses=losses,
        query=uuid.UUID(own["query"]) if "query" in own else None,
    )


def _to_json(positions: Positions) -> dict[str, dict[str, int]]:
    return {topic: _by_text(positions[topic]) for topic in sorted(positions)}


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets in the order of their partitions, of which there may be ten thousand."""
    partitions = sorted(offsets)
    return dict(zip(map(_text, partitions), map(offsets.__getitem__, partitions), strict=True))


def _from_json(data: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): offset for p, offset in data[topic].items()} for topic in data}


def records_of(losses: Lost) -> int:
    """Return how many records these ranges have."""
    return sum(end - start for ranges in losses.values() for start, end in ranges)


def _losses_to_json(losses: Lost) -> dict[str, dict[str, list[list[int]]]]:
    data: dict[str, dict[str, list[list[int]]]] = {}
    for topic_id, partition in sorted(losses):
        ranges = [list(each) for each in losses[topic_id, partition]]
        data.setdefault(str(topic_id), {})[_text(partition)] = ranges
    return data


def _losses_from_json(data: Mapping[str, Mapping[str, list[list[int]]]]) -> Lost:
    return {
        (uuid.UUID(topic_id), int(partition)): tuple((start, end) for start, end in ranges)
        for topic_id, by_partition in data.items()
        for partition, ranges in by_partition.items()
    }
