"""The facts that a stream reports by its query's progress, and how a listener reads them.

Spark has no metrics for sources in Python. But it uses the `latestOffset` of a source's progress
for nothing else, so the source's own entry there, `"#kmq"`, has what a driver wants to know.
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

#: Records that are not finished, by topic and partition.
Lags = dict[str, dict[int, int]]


def latest_of_progress(
    ends: StreamOffset,
    end: StreamOffset,
    *,
    url: str,
    place: Place | None,
    lost: int,
    archived: bool,
) -> dict[str, Any]:
    """Return the end of the log as an offset for the progress of a query that is at `end`."""
    data = ends.to_json()
    facts = {"behind": _total_lag(end, ends), "lost": lost, "store": url}
    if archived:
        facts["archived"] = True
    if place is not None:
        facts |= {
            "group": place.group,
            "generation": place.generation,
            "query": str(place.query),
        }
    data[OWN_KEY] = dict(sorted({**data[OWN_KEY], **facts}.items()))
    return data


def lags_of(finished: StreamOffset, ends: StreamOffset) -> Lags:
    """Return how many records of each partition are not finished; of a topic made again, all."""
    lags = {}
    for name, by_partition in ends.positions.items():
        same = (finished.ids or {}).get(name) == (ends.ids or {}).get(name)
        at: Mapping[int, int] = finished.positions.get(name, {}) if same else {}
        lags[name] = {p: max(n - at.get(p, 0), 0) for p, n in by_partition.items()}
    return lags


def _total_lag(finished: StreamOffset, ends: StreamOffset) -> int:
    """The sum of all lags; forty times as fast where every partition is known."""
    if finished.positions.keys() == ends.positions.keys() and finished.ids == ends.ids:
        return sum(
            sum(ends.positions[name].values()) - sum(finished.positions[name].values())
            for name in ends.positions
        )
    return sum(sum(by_partition.values()) for by_partition in lags_of(finished, ends).values())


@dataclass(frozen=True)
class SourceProgress:
    """One kmq source in the progress of a query."""

    #: Up to where the sink has committed.
    finished: StreamOffset
    #: Where the log ended when the batch was planned; None for a batch that was replayed.
    latest: StreamOffset | None
    url: str | None = None
    place: Place | None = None
    #: Records that the query has lost, over all its runs.
    lost: int = 0
    #: Whether the query also reads what was trimmed, from an archive.
    archived: bool = False

    @property
    def covered(self) -> StreamOffset:
        """Names the topics and partitions that the query reads, as its last progress knew them."""
        return self.latest or self.finished


def source_of_progress(
    end: str | None, latest: str | None, storage_options: Mapping[str, Any] | None
) -> SourceProgress | None:
    """Return the source of two offsets of a progress; None when they are not of kmq.

    A progress doesn't have the options of a bucket's client: they are given here.
    """
    finished, ends = _own(end), _own(latest)
    if finished is None:
        return None
    position = parse_stream_offset(finished)
    if ends is None:
        return SourceProgress(position, None, lost=position.lost)
    facts = ends[OWN_KEY]
    place = None
    if "group" in facts:
        place = Place(facts["group"], uuid.UUID(facts["query"]), facts["generation"])
    url = StoreUrl(facts["store"], storage_options or {})
    known, archived = parse_stream_offset(ends), "archived" in facts
    return SourceProgress(position, known, url, place, facts["lost"], archived)


def _own(offset: str | None) -> dict[str, Any] | None:
    """The JSON object of an offset of ours; Spark writes None as text where there is none."""
    data = json.loads(offset) if offset and offset.startswith("{") else None
    return data if isinstance(data, dict) and OWN_KEY in data else None
