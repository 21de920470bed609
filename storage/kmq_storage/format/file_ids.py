"""The ids of staged files and segments: random, and how far their writer knew the log.

A file that no commit names after long is garbage. So that no commit names it later, the log
condemns all files that were begun by who knew no more than some LSN (`CondemnEntry`): who comes
later with such a file is refused when its commit is bound, and writes the file anew.
"""

from __future__ import annotations

import uuid

_RANDOM_BYTES = 8
#: Ids from before the LSN stood in them are those of UUIDs: their 9th byte begins with this bit.
_NO_LSN = 1 << 63


def new_file_id(random: uuid.UUID, lsn: int) -> bytes:
    """The id (16 bytes) of a file that is begun by who knows the log up to this LSN."""
    return random.bytes[:_RANDOM_BYTES] + lsn.to_bytes(16 - _RANDOM_BYTES, "big")


def begun_at(file_id: bytes) -> int:
    """The LSN up to which the writer of a file knew the log; 0 where the id does not tell."""
    lsn = int.from_bytes(file_id[_RANDOM_BYTES:], "big")
    return 0 if lsn & _NO_LSN else lsn
