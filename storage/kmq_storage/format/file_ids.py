"""The ids of staged files and segments: a random part, and the last LSN that the writer knew.

A file that no commit has named for a long time is garbage. Before garbage is deleted, a
`CondemnEntry` in the log condemns all files that were begun at or before some LSN, so that no later
commit can name one of them. A writer whose commit names a condemned file is refused when the commit
is bound, and writes the file again with a new id.
"""

from __future__ import annotations

import uuid

_RANDOM_BYTES = 8
#: Set in ids of earlier versions, which have no LSN: they are UUIDs, with this bit in the 9th byte.
_NO_LSN = 1 << 63


def new_file_id(random: uuid.UUID, lsn: int) -> bytes:
    """A new id (16 bytes) for a file whose writer knows the log up to this LSN."""
    return random.bytes[:_RANDOM_BYTES] + lsn.to_bytes(16 - _RANDOM_BYTES, "big")


def begun_at(file_id: bytes) -> int:
    """The LSN up to which the writer of a file knew the log; 0 if the id doesn't have it."""
    lsn = int.from_bytes(file_id[_RANDOM_BYTES:], "big")
    return 0 if lsn & _NO_LSN else lsn
