"""The entry of records that senders deduplicate: a text is stored once within a span of time."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple


class Uniq(NamedTuple):
    """One deduplicated record: its partition, its offset, and the digest of its text."""

    partition: int
    #: Until the commit is bound, counted from 0 among the unit's records for the partition.
    offset: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class UniqEntry:
    """Names the records of the same unit, for one topic, that must not be stored a second time."""

    topic_id: bytes
    #: The end (UTC us) of the window of deduplication: texts that are older than it are ignored.
    time: int
    uniqs: tuple[Uniq, ...]

    kind = 20
    _layout = struct.Struct("<16sq")
    _row = struct.Struct("<IxxxxQ16s")

    def bound(self, uniqs: tuple[Uniq, ...]) -> UniqEntry:
        """The same entry with the final offsets of the records."""
        return replace(self, uniqs=uniqs)

    def shifted(self, rows: Mapping[int, int]) -> UniqEntry:
        """The same entry when `rows` more records of the unit, by partition, come before it."""
        return replace(
            self, uniqs=tuple(u._replace(offset=u.offset + rows[u.partition]) for u in self.uniqs)
        )

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        rows = [self._row.pack(*each) for each in self.uniqs]
        return self._layout.pack(self.topic_id, self.time) + b"".join(rows)

    @classmethod
    def parse(cls, payload: bytes) -> UniqEntry:
        """The entry of a binary form."""
        topic_id, time = cls._layout.unpack_from(payload)
        rows = cls._row.iter_unpack(payload[cls._layout.size :])
        return cls(topic_id, time, tuple(Uniq(*row) for row in rows))
