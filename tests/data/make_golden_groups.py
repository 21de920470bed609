"""Make the golden store of groups: `python tests/data/make_golden_groups.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-groups` are
never made again.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.group_entries import (
    GroupPlan,
    GroupPlanEntry,
    GroupReleaseEntry,
    Interest,
    PlannedMember,
)
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import environment

LOG_FILE_BYTES = 16_384
ORDERS, AUDIT = bytes([51]) * 16, bytes([52]) * 16
#: One of each kind of interest, one with a name of its own.
A = PlannedMember("a1" * 16, "a", True, "host-1", "sticky", 45.0, Interest(("orders",)))
B = PlannedMember("b2" * 16, "member-b", False, "host-2", "sticky", 4.5, Interest(pattern="^o|t$"))
C = PlannedMember(
    "c3" * 16, "member-c", False, "host-2", "sticky", 45.0, Interest(chosen={"audit": (0, 2)})
)
#: When the first one joined, as a later plan repeats it.
JOINED = 1_700_000_000_000_000
_ALONE = GroupPlan({1: A}, {(ORDERS, n): 1 for n in range(5)})
_MOVING = GroupPlan(
    {1: replace(A, joined=JOINED), 2: B, 3: C},
    {**{(ORDERS, n): 1 for n in range(5)}, (AUDIT, 0): 3, (AUDIT, 1): 2, (AUDIT, 2): 3},
    {(ORDERS, 1): 2, (ORDERS, 3): 2, (ORDERS, 4): 2},
)


def make(folder: Path) -> None:
    """Write the store: a group with moves that are under way, in a checkpoint and behind it."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=LOG_FILE_BYTES), env)
    entries = (
        TopicEntry(ORDERS, "orders", 5, {}),
        TopicEntry(AUDIT, "audit", 3, {}),
        GroupPlanEntry("shared", 1, _ALONE),
        GroupOffsetsEntry("shared", 1, ORDERS, ((0, 0), (3, 0))),
        GroupEntry("alone", 1, "query", "host-3", {"audit": [0]}),
        GroupPlanEntry("shared", 2, _MOVING),
    )
    for entry in entries:
        log.commit([Unit((entry,))])
    checkpoint(log)
    log.commit([Unit((GroupReleaseEntry("shared", 1, ((ORDERS, 1), (ORDERS, 3))),))])
    log.commit([Unit((GroupOffsetsEntry("shared", 2, ORDERS, ((3, 0),)),))])
    log.commit([Unit((GroupPlanEntry("alone", 2, _ALONE),))])
    log.close()
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
