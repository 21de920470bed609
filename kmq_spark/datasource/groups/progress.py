"""What a stream tells through its query's progress, and how a listener reads it there.

Spark has no metrics for sources in Python. But `latestOffset` of a source's progress is made by
the source for no other use, so its own entry, `"#kmq"`, has what a driver wants to know.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kmq_spark.datasource.groups.committed import Place
from kmq_spark.datasource.offsets import OWN_KEY, StreamOffset, parse_stream_offset
from kmq_spark.datasource.store_url import StoreUrl


def latest_of_progress(
    ends: StreamOffset, end: StreamOffset, *, url: str, place: Place | None, lost: int
) -> dict[str, Any]:
    """The end of the log as an offset in the progress of a query that has read up to `end`."""
    data = ends.to_json()
    facts = {"behind": _behind(end, ends), "lost": lost, "store": url}
    if place is not None:
        facts |= {
            "group": place.group,
            "generation": place.generation,
            "query": str(place.query),
        }
    data[OWN_KEY] = dict(sorted({**data[OWN_KEY], **facts}.items()))
    return data


def records_behind(finished: StreamOffset, ends: StreamOffset) -> dict[str, dict[int, int]]:
    """How many records each partition has behind a position; of a recreated topic all."""
    lags = {}
    for name, by_partition in ends.positions.items():
        same = (finished.ids or {}).get(name) == (ends.ids or {}).get(name)
        at: Mapping[int, int] = finished.positions.get(name, {}) if same else {}
        lags[name] = {p: max(n - at.get(p, 0), 0) for p, n in by_partition.items()}
    return lags


def _behind(finished: StreamOffset, ends: StreamOffset) -> int:
    """The sum of all lags; quick where every partition is known."""
    if finished.positions.keys() == ends.positions.keys() and finished.ids == ends.ids:
        return sum(
            sum(ends.positions[name].values()) - sum(finished.positions[name].values())
            for name in ends.positions
        )
    return sum(
        sum(by_partition.values()) for by_partition in records_behind(finished, ends).values()
    )


@dataclass(frozen=True)
class SourceProgress:
    """One kmq source in the progress of a query."""

    #: Up to where the sink has committed.
    finished: StreamOffset
    #: Where the log ended when the batch was planned; None for a batch that was replayed.
    latest: StreamOffset | None
    url: str | None = None
    place: Place | None = None
    #: Records that are known to be lost in this run.
    lost: int = 0

    @property
    def covered(self) -> StreamOffset:
        """Names the topics and partitions that the query reads, as its last progress knew them."""
        return self.latest or self.finished


def source_of_progress(
    end: str | None, latest: str | None, storage_options: Mapping[str, Any] | None
) -> SourceProgress | None:
    """The source of two offsets of a progress; None when they are not of kmq.

    A progress doesn't tell how the client of a bucket gets in: that is given here.
    """
    finished, ends = _own(end), _own(latest)
    if finished is None:
        return None
    position = parse_stream_offset(finished)
    if ends is None:
        return SourceProgress(position, None)
    facts = ends[OWN_KEY]
    place = None
    if "group" in facts:
        place = Place(facts["group"], uuid.UUID(facts["query"]), facts["generation"])
    url = StoreUrl(facts["store"], storage_options or {})
    return SourceProgress(position, parse_stream_offset(ends), url, place, facts["lost"])


def _own(offset: str | None) -> dict[str, Any] | None:
    """The JSON object of an offset of ours; Spark writes None as text where there is none."""
    data = json.loads(offset) if offset and offset.startswith("{") else None
    return data if isinstance(data, dict) and OWN_KEY in data else None
