"""Checks of receivers' slips: damaged notes in uses that are not over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from kmq_storage import paths
from kmq_storage.errors import ConflictError
from kmq_storage.format.slip_words import PLACES, WORDS, SlipWords
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.queues.slips import SlipPage, boot_of, picked, take_over

_BYTES = 8 * WORDS
_AGAIN = "what can't be proven comes again, though some may have been acknowledged"


def check_slips(log: CommitLog) -> Iterator[Finding]:
    """Damage in slips; only those whose use is not over are checked."""
    for queue, slip_id, slip in _open_rounds(log.state):
        if _is_damaged(log, queue, slip_id, slip):
            yield from _check(log, slip_id, slip)


def end_damaged(log: CommitLog) -> Iterator[str]:
    """Commit the valid notes of damaged slips, so that the other records are delivered again."""
    for queue, slip_id, slip in list(_open_rounds(log.refresh())):
        if _is_damaged(log, queue, slip_id, slip):
            with suppress(ConflictError):  # the receiver or another process was faster
                take_over(log, queue.id, SlipPage(log.files, slip_id), slip)
            yield f"{paths.slip_file(slip_id)}: what it proves was committed; {_AGAIN}"


def _open_rounds(state: StoreState) -> Iterator[tuple[Queue, bytes, Slip]]:
    for queue in list(state.queues):
        for slip_id, slip in list(queue.slips.items()):
            yield queue, slip_id, slip


def _is_damaged(log: CommitLog, queue: Queue, slip_id: bytes, slip: Slip) -> bool:
    """Whether a slip is damaged and its use is not over, as its receiver may have ended it."""
    if not any(True for _ in _check(log, slip_id, slip)):
        return False
    now = log.refresh().queues.by_id(queue.id)
    found = None if now is None else now.slips.get(slip_id)
    return found is not None and found.round == slip.round


def _check(log: CommitLog, slip_id: bytes, slip: Slip) -> Iterator[Finding]:
    file, disk = paths.slip_file(slip_id), log.files
    #: After a reboot, zeros are words that never came to disk.
    lost = slip.boot not in (None, boot_of(disk))
    try:
        contents = disk.read(file)
    except FileNotFoundError:
        yield _finding(file, f"the slip is missing; {_AGAIN}", harmless=lost)
        return
    if len(contents) != _BYTES:
        reason = f"the slip has {len(contents)} bytes instead of {_BYTES}; {_AGAIN}"
        yield _finding(file, reason, harmless=lost and not contents)
    if slip.boot is not None:
        yield from _check_words(log, slip_id, slip, contents, lost=lost)


def _check_words(
    log: CommitLog, slip_id: bytes, slip: Slip, contents: bytes, *, lost: bool
) -> Iterator[Finding]:
    file = paths.slip_file(slip_id)
    words = np.frombuffer(contents[:_BYTES].ljust(_BYTES, b"\0"), "<u8")
    rounds, _ = SlipWords(slip_id).parsed(0, words.tolist())
    bad = np.flatnonzero(rounds < 0)
    if lost and not words[bad].any():
        if len(bad):
            yield Note(file, f"{len(bad)} words were lost when the machine failed; {_AGAIN}")
        return
    places = {int(each) - 1 for each in bad if 1 <= each <= slip.rows}
    for run in picked(slip.runs, places) if places else ():
        topic = log.state.topic_by_id(run.topic_id)
        name = run.topic_id.hex() if topic is None else topic.name
        yield Damage(file, name, run.partition, run.first, run.end, f"notes: {_AGAIN}")
    others = sum(1 for each in bad if not 1 <= each <= slip.rows)
    if others:
        groups = int((bad > PLACES).sum())
        yield Damage(file, reason=f"{others} other words are damaged, {groups} of groups; {_AGAIN}")


def _finding(file: str, reason: str, *, harmless: bool) -> Finding:
    return Note(file, reason) if harmless else Damage(file, reason=reason)
