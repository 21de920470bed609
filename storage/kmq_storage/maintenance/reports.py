"""Reports of maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field

from kmq_storage.format.layout_entries import SegmentEntry


@dataclass(frozen=True, slots=True)
class SealReport:
    """Records that were moved from the commit log into segments."""

    segments: int = 0
    rows: int = 0
    #: Bytes of the segment files.
    bytes: int = 0
    #: Ranges that another maintainer changed meanwhile, so that they were left out.
    conflicts: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint that was written, or the newest one if none was due."""

    #: 0 while there is no checkpoint.
    lsn: int
    #: Leaf pages of the manifest that were written; others are shared with earlier checkpoints.
    pages: int = 0


@dataclass(frozen=True, slots=True)
class TrimReport:
    """Records that were trimmed."""

    #: The new start of each trimmed partition, by topic.
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    rows: int = 0
    #: Bytes of keys, values, headers and properties.
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompactReport:
    """Segments that were rewritten."""

    #: The number of segments that were replaced, and of those that replace them.
    before: int = 0
    after: int = 0
    #: Dropped records: superseded ones, finished ones of queues, messages of queues that ended, and
    #: old tombstones and ends.
    dropped: int = 0
    #: Replacements that failed because another maintainer changed the partition meanwhile.
    conflicts: int = 0


def replacing(segments: int, entry: SegmentEntry | None) -> CompactReport:
    """The report of one segment in place of several; without its entry, of a conflict."""
    if entry is None:
        return CompactReport(conflicts=1)
    return CompactReport(segments, 1, entry.old_rows - entry.rows)


def all_sealed(reports: Iterable[SealReport]) -> SealReport:
    """The sum of several reports."""
    return SealReport(*_sums(reports))


def all_trimmed(reports: Iterable[TrimReport]) -> TrimReport:
    """The sum of several reports; for a partition, the last start counts."""
    reports = list(reports)
    starts: dict[str, dict[int, int]] = {}
    for report in reports:
        for topic, by_partition in report.starts.items():
            starts.setdefault(topic, {}).update(by_partition)
    return TrimReport(
        starts, sum(report.rows for report in reports), sum(report.bytes for report in reports)
    )


def all_compacted(reports: Iterable[CompactReport]) -> CompactReport:
    """The sum of several reports."""
    return CompactReport(*_sums(reports))


def _sums(reports: Iterable[SealReport | CompactReport]) -> Iterator[int]:
    """The sum of each field over reports of one kind."""
    return map(sum, zip(*map(astuple, reports), strict=True))


@dataclass(frozen=True, slots=True)
class CollectReport:
    """Files that were deleted because nothing refers to them."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """The reports of all steps."""

    trimmed: TrimReport
    sealed: SealReport
    compacted: CompactReport
    checkpoint: CheckpointReport
    collected: CollectReport


@dataclass(frozen=True, slots=True)
class CloneReport:
    """A clone that was made."""

    #: The commit of the source whose state the clone has.
    lsn: int
    #: Files that the clone shares with its source.
    files: int
    #: Records in the source's commit log, which were copied.
    rows: int
    #: Bytes of the segments written for these records.
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Bytes and files of a store."""

    #: Bytes of files by kind (log, staged, segments, checkpoints, pages), including shared files.
    #: For log files, which are sparse, these are the allocated bytes, as `du` counts them.
    bytes: dict[str, int]
    #: The number of files by kind.
    files: dict[str, int]
    #: Files, included above, that clones of the store or its own source share.
    shared_files: int
    shared_bytes: int
    #: The number of records, and their bytes of keys, values, headers and properties.
    rows: int
    payload: int
    #: Segments smaller than a sixteenth of the usual size.
    small_segments: int
    #: Files that the newest state doesn't refer to; `collect` deletes them in time.
    garbage_files: int
    garbage_bytes: int
    #: The bytes of all written record batches and segments, divided by those that producers, and
    #: copies into the store, wrote.
    write_amplification: float
    #: Damage that stops all maintenance, and what to do; empty if there is none.
    damage: str = ""
