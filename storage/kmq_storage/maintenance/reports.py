"""What maintenance did, as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field


@dataclass(frozen=True, slots=True)
class SealReport:
    """Records that were moved from the commit log into segments."""

    segments: int = 0
    rows: int = 0
    #: Bytes of the segment files.
    bytes: int = 0
    #: Ranges that another maintainer sealed, rewrote or trimmed meanwhile.
    conflicts: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint that was written, or the one that is the newest already."""

    #: 0 while there is none.
    lsn: int
    #: Leaf pages of the manifest that were written; the others are those of earlier checkpoints.
    pages: int = 0


@dataclass(frozen=True, slots=True)
class TrimReport:
    """Records that were given up: the new start of each partition that moved."""

    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    rows: int = 0
    #: Bytes of keys, values, headers and properties.
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompactReport:
    """Segments that were rewritten."""

    #: Segments there were before, and are instead now.
    before: int = 0
    after: int = 0
    #: Records that a newer one of their key made superfluous, messages of queues that ended, and
    #: tombstones and ends that had their time.
    dropped: int = 0
    #: Runs of segments that another maintainer rewrote or trimmed meanwhile.
    conflicts: int = 0


def all_sealed(reports: Iterable[SealReport]) -> SealReport:
    """What several seals did together."""
    return SealReport(*_sums(reports))


def all_trimmed(reports: Iterable[TrimReport]) -> TrimReport:
    """What several trims of one topic did together."""
    reports = list(reports)
    starts: dict[str, dict[int, int]] = {}
    for report in reports:
        for topic, by_partition in report.starts.items():
            starts.setdefault(topic, {}).update(by_partition)
    return TrimReport(
        starts, sum(report.rows for report in reports), sum(report.bytes for report in reports)
    )


def all_compacted(reports: Iterable[CompactReport]) -> CompactReport:
    """What several compactions did together."""
    return CompactReport(*_sums(reports))


def _sums(reports: Iterable[SealReport | CompactReport]) -> Iterator[int]:
    """What each field of reports of one kind adds up to."""
    return map(sum, zip(*map(astuple, reports), strict=True))


@dataclass(frozen=True, slots=True)
class CollectReport:
    """Files that were deleted, since nothing refers to them."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """What was due and was done."""

    trimmed: TrimReport
    sealed: SealReport
    compacted: CompactReport
    checkpoint: CheckpointReport
    collected: CollectReport


@dataclass(frozen=True, slots=True)
class CloneReport:
    """What a clone is made of."""

    #: The commit of the source whose state it has.
    lsn: int
    #: Files that it shares with its source.
    files: int
    #: Records that stood in the commit log and were copied.
    rows: int
    #: Bytes of the segments written for them.
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Bytes and files of a store."""

    #: Bytes of files by kind: log, staged, segments, checkpoints, pages; shared ones, too.
    bytes: dict[str, int]
    #: Files by kind.
    files: dict[str, int]
    #: Of these, what clones of the store, or the store that it is a clone of, have too.
    shared_files: int
    shared_bytes: int
    #: Records held, and their bytes of keys, values, headers and properties.
    rows: int
    payload: int
    #: Segments below a sixteenth of the usual size.
    small_segments: int
    #: Files that the newest state doesn't refer to; `collect` deletes them in time.
    garbage_files: int
    garbage_bytes: int
    #: Bytes of record batches written, segments included, by those written first.
    write_amplification: float
    #: What keeps all maintenance from going on, and what to do; empty where nothing does.
    damage: str = ""
