"""The golden store of groups: `format-1-groups`."""

from __future__ import annotations

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
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log

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
    with golden_log(folder, file_bytes=LOG_FILE_BYTES) as log:
        entries = (
            TopicEntry(ORDERS, "orders", 5, {}),
            TopicEntry(AUDIT, "audit", 3, {}),
            GroupPlanEntry("shared", 1, _ALONE),
            GroupOffsetsEntry("shared", 1, ORDERS, ((0, 0), (3, 0))),
            GroupEntry("alone", 1, "query", "host-3", {"audit": [0]}),
            GroupPlanEntry("shared", 2, _MOVING),
        )
        for entry in entries:
            commit(log, entry)
        checkpoint(log)
        commit(log, GroupReleaseEntry("shared", 1, ((ORDERS, 1), (ORDERS, 3))))
        commit(log, GroupOffsetsEntry("shared", 2, ORDERS, ((3, 0),)))
        commit(log, GroupPlanEntry("alone", 2, _ALONE))
