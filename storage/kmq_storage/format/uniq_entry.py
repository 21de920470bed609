"""The entry of records that are to be stored once within a while, by a text of the sender's."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple


class Uniq(NamedTuple):
    """One such record: its partition, its offset, and the digest of its text."""

    partition: int
    #: From 0 among the unit's records for the partition, until the commit is bound.
    offset: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class UniqEntry:
    """Some of the records that the same unit has for a topic are not to be stored a second time."""

    topic_id: bytes
    #: Which ones were stored long enough ago is judged by this, UTC us.
    time: int
    uniqs: tuple[Uniq, ...]

    kind = 20
    _layout = struct.Struct("<16sq")
    _row = struct.Struct("<IxxxxQ16s")

    def bound(self, uniqs: tuple[Uniq, ...]) -> UniqEntry:
        """The same with the offsets that the records got."""
        return replace(self, uniqs=uniqs)

    def shifted(self, rows: Mapping[int, int]) -> UniqEntry:
        """The same behind so many more records of the unit, by partition."""
        return replace(
            self, uniqs=tuple(u._replace(offset=u.offset + rows[u.partition]) for u in self.uniqs)
        )

    def payload(self) -> bytes:
        """The binary form."""
        rows = [self._row.pack(*each) for each in self.uniqs]
        return self._layout.pack(self.topic_id, self.time) + b"".join(rows)

    @classmethod
    def parse(cls, payload: bytes) -> UniqEntry:
        """The entry of a binary form."""
        topic_id, time = cls._layout.unpack_from(payload)
        rows = cls._row.iter_unpack(payload[cls._layout.size :])
        return cls(topic_id, time, tuple(Uniq(*row) for row in rows))
