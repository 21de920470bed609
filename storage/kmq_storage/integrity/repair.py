"""Repair: make a store whole again without losing data, or, if asked to, give up what is lost.

The steps are, in order:

1. The manifest, so that all rows are known.
2. The log, so that commits can be written.
3. The records.
4. Files that have only damage and nothing that is needed.

Each step is a commit or a checkpoint. It is safe beside readers and writers. When the process is
killed, the next repair goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from kmq_storage import paths
from kmq_storage.format.layout_entries import CondemnEntry
from kmq_storage.format.manifest import Key
from kmq_storage.integrity.checks.older import nobody_needs
from kmq_storage.integrity.checks.slips import end_damaged
from kmq_storage.integrity.checks.small_files import unreadable_pins
from kmq_storage.integrity.files.commit_objects import take_missing
from kmq_storage.integrity.remains.lost_end import lost_end
from kmq_storage.integrity.remains.unnamed_segments import (
    complete,
    ends_of,
    rows_to_put_back,
    unnamed_segments,
)
from kmq_storage.integrity.remains.unnamed_staged import unnamed_rows
from kmq_storage.integrity.repairs.made_again import made_again, named_again
from kmq_storage.integrity.repairs.manifest import repair_manifest
from kmq_storage.integrity.repairs.pages import rebuild_pages
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.integrity.repairs.records import RecordsRepair
from kmq_storage.integrity.repairs.restoring import restore
from kmq_storage.integrity.report import Damage, Report
from kmq_storage.integrity.verify import verify
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.bucket.commit_objects import CommitObjects
from kmq_storage.log.checkpoints.checkpoint import checkpoints
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.disk_errors import check_writable, translated
from kmq_storage.log.open import bucket_files, is_disk
from kmq_storage.log.state.lost_ranges import Span, Unnamed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.maintenance.references import references_of
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.files import Files


def repair(log: CommitLog, *, drop_damaged: bool = False) -> Report:
    """Repair a store; the report lists what was done and what is still damaged.

    By default, nothing is given up. With `drop_damaged`, unreadable records are cut out: readers
    then get DataLossError with the range, and can go on behind it. UnavailableError when the store
    can't be read or written; the next repair goes on.
    """
    check_writable(log.files)
    with translated(log.files.url), log.files.afresh():
        done = list(_steps(log, drop_damaged=drop_damaged))
        report = verify(log, deep=True)
        if nobody_needs(log, report.damage):
            done += [_newest(log), *_forget_older(log, report.damage)]
            report = verify(log, deep=True)
    notes = [*dict.fromkeys(done), *report.notes]
    return Report(report.ok, report.damage, report.unreferenced, notes)


def _steps(log: CommitLog, *, drop_damaged: bool) -> Iterator[str]:
    yield from repair_manifest(log)
    place = log.files, log.identity, log.environment
    made_anew = list(rebuild_pages(*place, drop_damaged=drop_damaged))
    if made_anew:
        yield from chain(made_anew, repair_manifest(log))
    yield from _unreadable_pins(log)
    yield from restore(log)
    yield from named_again(log)
    damage = verify(log, deep=True).damage
    if not damage or any(each.file.startswith(paths.PAGE_FOLDER) for each in damage):
        return  # without the manifest, it is unknown where records are
    if drop_damaged and not isinstance(log, LocalLog):
        _block_lost_end(log)
    state = log.refresh()
    if state.damage or state.broken is not None:
        if not drop_damaged:
            return  # commits can be written only after the lost ones were given up
        yield from _go_on_behind(log, damage)
        yield from named_again(log)
        damage = verify(log, deep=True).damage
    yield from end_damaged(log)
    damage = [each for each in damage if not each.file.startswith(paths.SLIP_FOLDER)]
    repaired = list(RecordsRepair(log, damage, drop_damaged=drop_damaged).run())
    yield from repaired
    if drop_damaged and any(each.file.startswith(paths.LOG_FOLDER) for each in damage):
        yield from _leave_behind(log)
    elif repaired or drop_damaged:  # a checkpoint without records that a repair gave up
        yield _newest(log)
    if drop_damaged:
        yield from _forget_older(log, damage)


def _unreadable_pins(log: CommitLog) -> Iterator[str]:
    for file in unreadable_pins(log.files):
        log.files.remove(file)
        yield f"{file}: was removed, nobody can read what it keeps"


def _block_lost_end(log: CommitLog) -> None:
    """Make readers notice commits that are lost behind the last one: see `lost_end`."""
    lost = lost_end(log)
    if lost is not None:
        CommitObjects(bucket_files(log.files), log.identity.seed).block(lost.last_lsn)
        log.reload()


def _is_nothing_left(log: CommitLog) -> bool:
    """Whether only segments are left: there is no checkpoint and no readable commit."""
    return not log.refresh().lsn and any(True for _ in log.files.walk(paths.SEGMENT_FOLDER))


def _go_on_behind(log: CommitLog, damage: Sequence[Damage] = ()) -> Iterator[str]:
    """Let the log go on behind a checkpoint of what can be read."""
    if _is_nothing_left(log):
        yield from rebuild(log.files, log.identity, log.environment)
        log.reload()
    state = log.refresh()
    yield from _lost_commits(state)
    behind = log.go_on_behind(_unnamed(log.files, state, damage))
    for found in behind.put_back:
        row = found.row
        yield (
            f"{found.topic}-{found.partition}: offsets {row.base_offset} to {row.end_offset - 1} "
            "are in a segment, and are there again"
        )
    for cut in behind.cut:
        gap = cut.gap
        yield f"{cut.topic}-{cut.partition}: offsets {gap.start} to {gap.end - 1} were cut out"
    for topic in made_again(state):
        yield (
            f"topic {topic.name}: the commit that made it is lost, and it is made again for what "
            "can be read of it, with the default settings"
        )
    yield f"the log goes on behind commit {log.reload().lsn}"


def _unnamed(files: Files, state: StoreState, damage: Sequence[Damage]) -> Unnamed:
    found = unnamed_segments(files, state)
    segments = rows_to_put_back(files, state, found) if is_disk(files) else {}
    return Unnamed(
        unnamed_rows(files, state),
        segments,
        complete(found),
        _unreadable(state, damage),
        ends_of(found),
    )


def _unreadable(state: StoreState, damage: Sequence[Damage]) -> dict[Key, list[Span]]:
    """The offsets of damaged records, by partition."""
    found: dict[Key, list[Span]] = {}
    for each in damage:
        topic = None if each.topic is None else state.find_topic(each.topic)
        if topic and each.partition is not None and each.start is not None and each.end is not None:
            found.setdefault((topic.id, each.partition), []).append((each.start, each.end))
    return found


def _lost_commits(state: StoreState) -> Iterator[str]:
    for lost in state.lost_commits:
        yield (
            f"{lost.file}: commits {lost.first_lsn} to {lost.last_lsn} ({lost.reason}) were given "
            "up with all that stood in them: beside records also trims (what they gave up is back "
            "where its files are still there), offsets and generations of groups, changes of "
            "topics, and numbers of producers and applications"
        )


def _leave_behind(log: CommitLog) -> Iterator[str]:
    """Move all records out of damaged log files, and remove these files.

    Commits that other processes write meanwhile are behind them, and stay.
    """
    if isinstance(log, LocalLog):
        yield from _go_on_behind(log)
    else:
        take_missing(bucket_files(log.files), log.identity.seed, log.refresh())
    state = log.refresh()
    behind = state.lsn + 1
    seal(log, plan_seal(state))
    yield _newest(log)
    needed = references_of(log.files, log.reload()).lowest_log_file()
    for file in log.drop_before(min(behind, needed)):
        yield f"{file}: was removed, its records are in segments"


def _newest(log: CommitLog) -> str:
    return f"checkpoint of commit {checkpoint(log).lsn} is the newest now"


def _forget_older(log: CommitLog, damage: Sequence[Damage]) -> Iterator[str]:
    """Remove older checkpoints, which still refer to what was given up.

    Another checkpoint is written first, so that there are two, as usual.
    """
    if damage:
        nothing_new = CondemnEntry(log.refresh().condemned)
        log.commit([Unit((nothing_new,))], durable=True)
        yield _newest(log)
        for root in checkpoints(log.files)[2:]:
            log.files.remove(paths.checkpoint_file(*root))
            yield f"{paths.checkpoint_file(*root)}: was removed, there are newer ones"
