"""Maintenance: whatever is due, in the order in which one thing makes room for the next."""

from __future__ import annotations

from kmq_storage import limits
from kmq_storage.log.checkpoint import checkpoints
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state import StoreState
from kmq_storage.maintenance.checkpointing import check_undamaged, checkpoint
from kmq_storage.maintenance.collect import collect, has_dropped_roots
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges, worth_compacting
from kmq_storage.maintenance.reports import (
    CheckpointReport,
    CollectReport,
    CompactReport,
    MaintainReport,
    all_compacted,
)
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.trim import plan_retention, trim

#: Fewer small neighbours are not worth writing their records once more.
_MERGED = 10


def maintain(log: CommitLog, *, grace: float = limits.COLLECT_GRACE) -> MaintainReport:
    """Trim, seal, compact, checkpoint and collect what is due.

    Safe at any time, also twice at once: each step is a commit that is refused when another one
    was faster, and files go only by the rule of `collect`. `grace` in seconds.
    """
    now = log.environment.now_us()
    state = log.refresh()
    check_undamaged(state)
    lsn = state.lsn  # before the plan: what a thread applies meanwhile makes it a conflict
    trimmed = trim(log, plan_retention(state, now), lsn)
    patience = round(limits.SEAL_AFTER * 1e6)
    sealed = seal(log, plan_seal(log.refresh(), older_than=now - patience))
    compacted = _compact(log, log.refresh())
    written, collected = CheckpointReport(log.state.lsn), CollectReport()
    due = _is_checkpoint_due(log, bool(trimmed.starts or sealed.segments or compacted.after))
    if due:
        written = checkpoint(log)
    if due or has_dropped_roots(log.disk, grace):
        collected = collect(log, grace=grace)
    return MaintainReport(trimmed, sealed, compacted, written, collected)


def _compact(log: CommitLog, state: StoreState) -> CompactReport:
    reports = []
    for topic in list(state.topics.values()):
        if worth_compacting(topic):
            reports.append(compact_keys(log, topic, state.lsn))
        elif topic.settings.cleanup == "delete":
            reports.append(merge(log, plan_merges(topic, state.lsn, fewest=_MERGED)))
    return all_compacted(reports)


def _is_checkpoint_due(log: CommitLog, laid_out: bool) -> bool:
    newest = checkpoints(log.disk)
    behind = log.refresh().lsn - (newest[0][0] if newest else 0)
    return behind >= limits.CHECKPOINT_COMMITS or (laid_out and behind > 0)
