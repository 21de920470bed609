"""The record of an archive: `_kmq/record-<n>.json` beside its data; the newest one counts.

The record ties the archive to a store, to the group that says how far it is, and to the
checkpoint of its streaming job. It never changes in place: a later one is another file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kmq_spark.lake.places import ArchivePlace
from kmq_storage.errors import ConflictError, FormatVersionError, InvalidRequestError

#: Hidden from Spark, Delta and Arrow by its underscore.
FOLDER = "_kmq"

#: What folders of typed topics in Parquet begin with: below one with an underscore, pandas and
#: Arrow see no files.
SEEN_FOLDERS = "kmq_"

#: 3 for an archive with folders of other names, 2 for one with holes; any other has 1, so that
#: older versions of kmq read it, too.
_VERSION = 3
_PREFIX = "record-"

#: Offsets from the first up to, not including, the second.
Span = tuple[int, int]

DELTA, PARQUET = "delta", "parquet"


@dataclass(frozen=True, kw_only=True)
class ArchiveRecord:
    """An archive: which store it is of, what it holds, and where it began."""

    store_id: str
    #: delta or parquet.
    format: str
    #: The consumer group whose offsets say up to where records are durably archived.
    group: str
    #: The folder of the job's checkpoint; also the id of its transactions in Delta.
    checkpoint: str
    topics: tuple[str, ...]
    #: Whether they are typed.
    typed: bool
    #: First archived offset by partition by topic id (hex); 0 where none is given.
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: Offsets that were lost before they were archived: ranges by partition by topic id (hex).
    holes: Mapping[str, Mapping[int, Sequence[Span]]] = field(default_factory=dict)
    #: What the names of the columns that are folders begin with, if not with `prefix`.
    folders: str | None = None

    def check_store(self, path: str, store_id: uuid.UUID) -> None:
        """Raise InvalidRequestError when the archive at this path is of another store."""
        if self.store_id != str(store_id):
            raise InvalidRequestError(
                f"archive {path} is of the store with id {self.store_id}, not of this one "
                f"({store_id}); choose another place",
                option="archive",
            )

    def start(self, topic_id: uuid.UUID, partition: int) -> int:
        """The first offset of a partition that the archive holds, or would hold."""
        return self.starts.get(topic_id.hex, {}).get(partition, 0)

    def lost(self, topic_id: uuid.UUID, partition: int, start: int, end: int) -> list[Span]:
        """Return which of these offsets the archive never had; start is included, end is not."""
        known = self.holes.get(topic_id.hex, {}).get(partition, ())
        inside = ((max(low, start), min(high, end)) for low, high in known)
        return [(low, high) for low, high in inside if low < high]

    def with_hole(self, topic_id: uuid.UUID, partition: int, hole: Span) -> ArchiveRecord:
        """Return the record with one more lost range; offsets before the start are left out."""
        low, high = max(hole[0], self.start(topic_id, partition)), hole[1]
        if low >= high:
            return self
        by_partition = dict(self.holes.get(topic_id.hex, {}))
        by_partition[partition] = _joined([*by_partition.get(partition, ()), (low, high)])
        return replace(self, holes={**self.holes, topic_id.hex: by_partition})

    @property
    def partitioned_by(self) -> tuple[str, str]:
        """The names of the columns that are folders: the topic and the day."""
        begin = self.prefix if self.folders is None else self.folders
        return f"{begin}topic", f"{begin}day"

    @property
    def prefix(self) -> str:
        """The prefix of metadata columns: typed topics' own columns have names without it."""
        return "_" if self.typed else ""

    def column(self, name: str) -> str:
        """The name of a metadata column."""
        return f"{self.prefix}{name}"


class ArchiveRecords:
    """The records in an archive's folder."""

    def __init__(self, place: ArchivePlace) -> None:
        self.files = place.folder(FOLDER)

    def newest(self) -> ArchiveRecord | None:
        """Return the newest record; None for a place that holds no archive."""
        numbers = self._numbers()
        return _decoded(self.files.read(_name(numbers[-1])), self.files.url) if numbers else None

    def add(self, record: ArchiveRecord) -> None:
        """Publish a later record; ConflictError when another job just did."""
        number = (self._numbers() or [0])[-1] + 1
        body = json.dumps(_encoded(record), indent=2, sort_keys=True)
        if not self.publish(_name(number), body.encode()):
            raise ConflictError(
                f"archive {self.files.url}: another job wrote {_name(number)}; start one job only"
            )

    def publish(self, name: str, body: bytes) -> bool:
        """Write a file of the folder; False if there is another one of its name."""
        try:
            return self.files.publish(name, [body], sync=True)
        except OSError:
            facts = self.files.bucket_facts()
            if facts is None or facts.conditional:
                raise
            # The bucket can't refuse a name that exists. One job alone doesn't need that.
            return self.files.publish(name, [body], sync=True)

    def has_checkpoint(self, record: ArchiveRecord) -> bool:
        """Whether the checkpoint of the job is there."""
        return bool(self.files.list(f"{record.checkpoint}/offsets"))

    def last_batch(self, record: ArchiveRecord, noted: str = "commits") -> int:
        """The number of the last batch that its checkpoint says is finished; -1 for none.

        With `noted="offsets"`: the last one that was planned.
        """
        names = self.files.list(f"{record.checkpoint}/{noted}")
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _numbers(self) -> list[int]:
        names = [name for name in self.files.list("") if name.startswith(_PREFIX)]
        return sorted(int(name.removeprefix(_PREFIX).removesuffix(".json")) for name in names)


def _name(number: int) -> str:
    return f"{_PREFIX}{number:08d}.json"


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Join ranges that touch or overlap; the result is in order."""
    joined: list[Span] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            low, high = joined[-1][0], max(high, joined.pop()[1])
        joined.append((low, high))
    return tuple(joined)


def _encoded(record: ArchiveRecord) -> dict[str, Any]:
    body = asdict(record)
    if record.folders is not None:
        return {"version": 3, **body}
    del body["folders"]
    if record.holes:
        return {"version": 2, **body}
    del body["holes"]
    return {"version": 1, **body}


def _decoded(raw: bytes, url: str) -> ArchiveRecord:
    body: dict[str, Any] = json.loads(raw)
    version = body.pop("version")
    if version > _VERSION:
        raise FormatVersionError(
            f"archive {url} was written by a newer kmq: its version is {version}, known up to "
            f"{_VERSION}",
            version=version,
        )
    starts = {t: {int(p): n for p, n in at.items()} for t, at in body.pop("starts").items()}
    holes = {
        topic: {int(p): tuple((low, high) for low, high in spans) for p, spans in lost.items()}
        for topic, lost in body.pop("holes", {}).items()
    }
    return ArchiveRecord(**body | {"topics": tuple(body["topics"])}, starts=starts, holes=holes)
