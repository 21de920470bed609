"""Maintenance: do all that is due, in an order in which each step makes room for the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext

from kmq_storage import limits
from kmq_storage.format.manifest import Key
from kmq_storage.log.checkpoints.checkpoint import checkpoints
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.moving import planning
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.candidates import wanted_rows
from kmq_storage.maintenance.checkpointing import check_undamaged, new_checkpoint
from kmq_storage.maintenance.collect import roots_of, try_collect
from kmq_storage.maintenance.collect_rule import plan_roots
from kmq_storage.maintenance.compact import (
    compact_keys,
    is_dirty,
    is_sealed,
    merge,
    plan_merges,
    with_old_tombstones,
    worth_compacting,
)
from kmq_storage.maintenance.damaged import Apart, Damaged
from kmq_storage.maintenance.finished import drop_finished, may_drop_finished
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.maintenance.manner import Manner, Rest, no_rest
from kmq_storage.maintenance.newest_runs import NewRuns, plan_newest
from kmq_storage.maintenance.pins import pinned_lsn
from kmq_storage.maintenance.reports import (
    CheckpointReport,
    CollectReport,
    CompactReport,
    MaintainReport,
    SealReport,
    TrimReport,
    all_compacted,
)
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.thinning import thin
from kmq_storage.maintenance.trim import retain

#: Segments are merged when the result is this many times as large as each, so that the rewriting
#: pays.
_MERGED = 10
#: Runs of keyed topics are merged sooner, as each run is one more place to look for a queue.
_MERGED_RUNS = 4
#: Runs that can't grow this far, because the next one is too large, are merged from this factor on
#: (`cutting.grown` says which other ones are, so that few of any sizes wait).
_FINAL_RUNS = 1.5


def maintain(
    log: CommitLog,
    last: LastLook | None = None,
    *,
    grace: float = limits.COLLECT_GRACE,
    rest: Rest = no_rest,
) -> MaintainReport:
    """Trim, seal, compact, checkpoint and collect what is due.

    It is safe at any time, also in several processes at once: each step is a commit that is refused
    when another process was faster, and files are deleted only by the rule of `collect`. `grace`
    is that of `collect`, in seconds. `rest` is called between pieces of work. Who maintains a store
    repeatedly keeps `last`.

    CorruptionError when records of a partition are damaged; all other work is done before.
    """
    damaged = Damaged()
    trimmed = begin(log, apart=damaged.apart)
    sealed, compacted = tidy(log, manner=Manner(damaged.apart, rest))
    finished = finish(log, last or LastLook(), grace=grace)
    damaged.tell()
    return MaintainReport(trimmed, sealed, compacted, *finished)


def begin(log: CommitLog, *, apart: Apart = nullcontext) -> TrimReport:
    """Trim what retention no longer keeps; CorruptionError while the log is damaged."""
    check_undamaged(log.refresh())
    return planning(log, lambda state: retain(log, state, apart=apart))


def tidy(
    log: CommitLog,
    only: tuple[str, int] | None = None,
    *,
    seal_after: float | None = None,
    manner: Manner,
) -> tuple[SealReport, CompactReport]:
    """Seal and compact what is due, in all partitions or in `only` one (topic and number).

    Records that do not fill a segment are sealed once they are older than `seal_after` seconds,
    which defaults to `limits.SEAL_AFTER`.
    """
    age = limits.SEAL_AFTER if seal_after is None else seal_after
    older_than = log.environment.now_us() - round(age * 1e6)
    new = NewRuns()

    def sealing(state: StoreState) -> SealReport:
        plan = plan_seal(state, only=only, older_than=older_than)
        return seal(log, new.noted(plan), manner=manner)

    sealed = planning(log, sealing)
    taken_in = planning(log, lambda state: _take_in(log, state, new, manner))
    compacted = planning(log, lambda state: _compact(log, state, only, manner))
    done = [taken_in, compacted]
    if may_drop_finished(log.state, _of_topics(log.state, only)):
        done.append(planning(log, lambda state: _drop(log, state, only, manner)))
    if sealed.segments or compacted.after:  # else no run is new, so none died
        done.append(planning(log, lambda state: _thin(log, state, only, manner)))
    return sealed, all_compacted(done)


def _drop(
    log: CommitLog, state: StoreState, only: tuple[str, int] | None, manner: Manner
) -> CompactReport:
    return drop_finished(log, state, _of_topics(state, only), manner=manner)


def _take_in(log: CommitLog, state: StoreState, new: NewRuns, manner: Manner) -> CompactReport:
    now = log.environment.now_us()
    plan = plan_newest(state, new, now) if new.ends else ()
    return merge(log, plan, manner=manner)


def _compact(
    log: CommitLog, state: StoreState, only: tuple[str, int] | None, manner: Manner
) -> CompactReport:
    lsn = state.lsn  # read before planning: commits that are applied meanwhile then conflict
    if only is not None:
        topics = _of_topics(state, only)
        return all_compacted(_compact_one(log, topic, lsn, [only[1]], manner) for topic in topics)
    topics = list(state.topics.values())
    segments = wanted_rows(state, is_sealed)
    compacts = any(topic.settings.cleanup == "compact" for topic in topics)
    dirty = wanted_rows(state, is_dirty) if compacts else {}
    return all_compacted(
        _compact_keys(log, topic, lsn, None, manner, dirty=dirty)
        if topic.settings.cleanup == "compact"
        else _merge(log, topic, lsn, _with_segments(topic, segments), manner)
        for topic in topics
    )


def _thin(
    log: CommitLog, state: StoreState, only: tuple[str, int] | None, manner: Manner
) -> CompactReport:
    keyed = (topic for topic in _of_topics(state, only) if topic.settings.keyed)
    return all_compacted(thin(log, topic, state.lsn, manner=manner) for topic in keyed)


def _of_topics(state: StoreState, only: tuple[str, int] | None) -> list[Topic]:
    """All topics, or `only` one, if it was not deleted meanwhile."""
    topics = list(state.topics.values())
    return [topic for topic in topics if only is None or topic.name == only[0]]


def _compact_one(
    log: CommitLog, topic: Topic, lsn: int, partitions: Iterable[int], manner: Manner
) -> CompactReport:
    compact = _compact_keys if topic.settings.cleanup == "compact" else _merge
    return compact(log, topic, lsn, partitions, manner)


def _factors(topic: Topic) -> tuple[float, float | None]:
    """How many times as large as each segment a merged one is: as for `plan_merges`."""
    return (_MERGED_RUNS, _FINAL_RUNS) if topic.settings.keyed else (_MERGED, None)


def _with_segments(topic: Topic, segments: Mapping[Key, int]) -> list[int]:
    """The partitions with enough segments: what is ten times as large as each has ten of them."""
    times, final = _factors(topic)
    least = math.ceil(final or times)
    return [n for n in range(topic.partitions) if segments.get((topic.id, n), 0) >= least]


def _merge(
    log: CommitLog, topic: Topic, lsn: int, partitions: Iterable[int], manner: Manner
) -> CompactReport:
    times, final = _factors(topic)
    now = log.environment.now_us()
    merges = plan_merges(topic, lsn, partitions=partitions, times=times, final=final, now=now)
    return merge(log, merges, manner=manner)


def _compact_keys(
    log: CommitLog,
    topic: Topic,
    lsn: int,
    partitions: Iterable[int] | None,
    manner: Manner,
    *,
    dirty: Mapping[Key, int] | None = None,
) -> CompactReport:
    if worth_compacting(topic, dirty):
        return compact_keys(log, topic, lsn, partitions=partitions, manner=manner)
    due = with_old_tombstones(topic, log.environment.now_us())
    wanted = due if partitions is None else [number for number in partitions if number in due]
    return compact_keys(log, topic, lsn, partitions=wanted, manner=manner)


def finish(
    log: CommitLog, last: LastLook, *, grace: float
) -> tuple[CheckpointReport, CollectReport]:
    """Write a checkpoint if many commits or a changed layout call for it, and collect if due."""
    with translated(log.files.url):
        newest = next((lsn for lsn, _ in checkpoints(log.files)), 0)
        state = log.refresh()
        many = state.lsn - newest >= limits.CHECKPOINT_COMMITS
        # Without any checkpoint, nobody could tell what a writer that died has left behind.
        first = not newest and 0 < state.time <= log.now_us() - round(limits.ORPHAN_AGE * 1e6)
        due = many or first or state.layout_lsn > newest
        written = new_checkpoint(log) if due else CheckpointReport(newest)
        now = log.files.now()
        pinned = pinned_lsn(log.files, now, log.files.remove)
        span = round(grace * 1e6)
        roots = plan_roots(list(roots_of(log.files)), since=now - span, pinned=pinned)
        is_due = due or roots.dropped or last.is_due(roots.floor, now)
        if not is_due or last.is_recent(now, span):
            return written, CollectReport()
        if (collected := try_collect(log, grace=grace)) is None:
            return written, CollectReport()  # another one is at it, or was: look again next time
        last.note(roots.floor, now, is_remote=log.is_remote)
        return written, collected
