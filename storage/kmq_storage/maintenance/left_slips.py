"""Slips of queues' receivers that died: they are deleted when they are old."""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.format.slip_words import ROUNDS, WORDS, SlipWords
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import FoundFile


def left_slips(log: CommitLog, before: int) -> list[FoundFile]:
    """Old slips that no queue refers to: their receivers died, as a slip is used only briefly.

    A receiver may live after all, as the machine slept for days, or its clock was set. Each slip
    is marked before the last look at the log: so whoever uses it afterwards commits its notes.
    """
    found = [each for each in log.files.walk(paths.SLIP_FOLDER) if paths.is_slip(each.path)]
    left = _unused(log, [file for file in found if file.modified <= before])
    for file in left:
        _mark(log.files, file.path)  # type: ignore[arg-type]  # there are no slips in buckets
    return _unused(log, left)


def _unused(log: CommitLog, slips: list[FoundFile]) -> list[FoundFile]:
    used = {paths.slip_file(slip) for queue in log.refresh().queues for slip in queue.slips}
    return [file for file in slips if file.path not in used]


def _mark(disk: Disk, path: str) -> None:
    """Have a receiver that finds this when it has noted ask the log whether that counts."""
    words = disk.open_words(path, WORDS)
    (mark,) = SlipWords(paths.slip_id(path)).sealed_at([0], ROUNDS - 1)
    words.store(0, mark)
    words.wake(0)
