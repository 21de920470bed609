"""What monitoring asks for, in the text format of Prometheus 0.0.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmq_spark.server.view import Seen
from kmq_storage.maintenance.reports import StoreStats

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The tables that metrics are made of.
TABLES = ("partitions", "groups", "members", "queues")

Sample = tuple[Mapping[str, Any], int | float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its samples; one without a value has no line."""

    name: str
    kind: str
    meaning: str
    samples: Sequence[Sample]


_PLACE = ("topic", "partition")
_BEHIND = ("group", *_PLACE)
#: A column of a table that is a metric: table, column, the columns that are labels, name, meaning.
_GAUGES = (
    ("partitions", "start", _PLACE, "partition_start_offset", "First offset still in the log."),
    ("partitions", "end", _PLACE, "partition_end_offset", "The next offset."),
    ("partitions", "rows", _PLACE, "partition_records", "Records held."),
    ("partitions", "bytes", _PLACE, "partition_bytes", "Bytes of the records held."),
    ("groups", "lag", _BEHIND, "group_lag_offsets", "Offsets that a group has yet to read."),
    ("groups", "lag_bytes", _BEHIND, "group_lag_bytes", "Bytes of records yet to read."),
    ("groups", "lag_seconds", _BEHIND, "group_lag_seconds", "Age of the first record to read."),
    # No counter: what a receiver gives back without having looked at it was no delivery.
    ("queues", "delivered", ("queue",), "queue_delivered", "Deliveries that were not given back."),
)
_COUNTERS = (
    ("queues", "acked", ("queue",), "queue_acked_total", "Records acknowledged."),
    ("queues", "dead", ("queue",), "queue_dead_total", "Records moved to the dead letters."),
    ("queues", "expired", ("queue",), "queue_expired_total", "Records that expired."),
)


def exposition(seen: Seen, stats: StoreStats) -> str:
    """Every metric of a store, as text."""
    return "".join(line for metric in _metrics(seen, stats) for line in _lines(metric))


def _metrics(seen: Seen, stats: StoreStats) -> Iterator[Metric]:
    rows = {name: seen.tables[name].to_pylist() for name in TABLES}
    for kind, columns in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for table, column, labels, name, meaning in columns:
            samples = [({each: row[each] for each in labels}, row[column]) for row in rows[table]]
            yield Metric(f"kmq_{name}", kind, meaning, samples)
    yield from _counted(rows)
    yield Metric("kmq_commits_total", "counter", "Number of the newest commit.", [({}, seen.lsn)])
    damaged = "Whether some of the log can't be read."
    yield Metric("kmq_log_damaged", "gauge", damaged, [({}, int(bool(seen.damage)))])
    yield from _storage(stats)


def _counted(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Metric]:
    live = Counter(row["group"] for row in rows["members"])
    members: list[Sample] = [
        ({"group": group}, live[group])
        for group in sorted({row["group"] for row in rows["groups"]} | set(live))
    ]
    yield Metric("kmq_group_members", "gauge", "Live members of a group.", members)
    states: list[Sample] = [
        ({"queue": row["queue"], "state": state}, row[state])
        for row in rows["queues"]
        for state in ("ready", "locked", "delayed")
    ]
    yield Metric("kmq_queue_records", "gauge", "Records that are not finished.", states)


def _storage(stats: StoreStats) -> Iterator[Metric]:
    for unit, found in (("bytes", stats.bytes), ("files", stats.files)):
        samples: list[Sample] = [({"kind": kind}, count) for kind, count in found.items()]
        yield Metric(
            f"kmq_store_{unit}", "gauge", f"{unit.title()} of the store, by kind.", samples
        )
    for name, meaning, count in (
        ("small_segments", "Segments below a sixteenth of the usual size.", stats.small_segments),
        ("garbage_files", "Files that nothing refers to.", stats.garbage_files),
        ("garbage_bytes", "Bytes of files that nothing refers to.", stats.garbage_bytes),
    ):
        yield Metric(f"kmq_store_{name}", "gauge", meaning, [({}, count)])


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"
    for labels, value in metric.samples:
        if value is not None:
            told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{metric.name}{'{' + told + '}' if told else ''} {value!r}\n"


def _escaped(label: Any) -> str:
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
