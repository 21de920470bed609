"""The metrics of a store, in the text format 0.0.4 of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kmq_spark.server.view import Seen
from kmq_storage.maintenance.reports import StoreStats

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The tables that metrics are made of.
TABLES = ("partitions", "groups", "members", "queues")

#: Labels and a value; a sample without a value has no line.
Sample = tuple[Mapping[str, Any], int | float | None]
#: Name, meaning and samples; one whose name ends with `_total` is a counter.
Metric = tuple[str, str, Sequence[Sample]]

_PLACE = ("topic", "partition")
_BEHIND = ("group", *_PLACE)
#: A column of a table that is a metric: table, column, the columns that are labels, name, meaning.
_COLUMNS = (
    ("partitions", "start", _PLACE, "partition_start_offset", "First offset still in the log."),
    ("partitions", "end", _PLACE, "partition_end_offset", "The next offset."),
    ("partitions", "rows", _PLACE, "partition_records", "Records held."),
    ("partitions", "bytes", _PLACE, "partition_bytes", "Bytes of the records held."),
    ("groups", "lag", _BEHIND, "group_lag_offsets", "Offsets that a group has yet to read."),
    ("groups", "lag_bytes", _BEHIND, "group_lag_bytes", "Bytes of records yet to read."),
    ("groups", "lag_seconds", _BEHIND, "group_lag_seconds", "Rough age of the first record."),
    # Not a counter: it falls when a receiver gives back a record that it hasn't looked at.
    ("queues", "delivered", ("queue",), "queue_delivered", "Deliveries that were not given back."),
    ("queues", "acked", ("queue",), "queue_acked_total", "Records acknowledged."),
    ("queues", "dead", ("queue",), "queue_dead_total", "Records moved to the dead letters."),
    ("queues", "expired", ("queue",), "queue_expired_total", "Records that expired."),
)


def exposition(seen: Seen, stats: StoreStats | None) -> str:
    """Return all metrics as text; tables that can't be read have none."""
    return "".join(line for metric in _metrics(seen, stats) for line in _lines(*metric))


def _metrics(seen: Seen, stats: StoreStats | None) -> Iterator[Metric]:
    rows = {name: seen.tables[name].to_pylist() if name in seen.tables else [] for name in TABLES}
    for table, column, labels, name, meaning in _COLUMNS:
        yield name, meaning, [({each: r[each] for each in labels}, r[column]) for r in rows[table]]
    live = Counter(row["group"] for row in rows["members"])
    groups = sorted({row["group"] for row in rows["groups"]} | set(live))
    members = [({"group": group}, live[group]) for group in groups]
    yield "group_members", "Live members of a group.", members
    states = [
        ({"queue": row["queue"], "state": state}, row[state])
        for row in rows["queues"]
        for state in ("ready", "locked", "delayed")
    ]
    yield "queue_records", "Records that are not finished.", states
    yield "commits_total", "Number of the newest commit.", [({}, seen.lsn)]
    yield "log_damaged", "Whether something can't be read.", [({}, int(bool(seen.damage)))]
    if stats is not None:
        yield from _of_files(stats)


def _of_files(stats: StoreStats) -> Iterator[Metric]:
    for unit, found in (("bytes", stats.bytes), ("files", stats.files)):
        samples = [({"kind": kind}, count) for kind, count in found.items()]
        yield f"store_{unit}", f"{unit.title()} of the store, by kind.", samples
    for name, meaning, count in (
        ("small_segments", "Segments below a sixteenth of the usual size.", stats.small_segments),
        ("garbage_files", "Files that nothing refers to.", stats.garbage_files),
        ("garbage_bytes", "Bytes of files that nothing refers to.", stats.garbage_bytes),
    ):
        yield f"store_{name}", meaning, [({}, count)]


def _lines(name: str, meaning: str, samples: Sequence[Sample]) -> Iterator[str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    yield f"# HELP kmq_{name} {meaning}\n# TYPE kmq_{name} {kind}\n"
    for labels, value in samples:
        if value is not None:
            told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"kmq_{name}{'{' + told + '}' if told else ''} {value!r}\n"


def _escaped(label: Any) -> str:
    return str(label).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
