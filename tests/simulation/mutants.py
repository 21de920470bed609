"""Planted mistakes: the harness must find each of them, else it would not find ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kmq_storage.log import binding, recovery, rewriting
from kmq_storage.log.group_sync import GroupSync
from kmq_storage.log.hint import SYNCED, WRITTEN, Hint
from kmq_storage.log.journal import Journal
from kmq_storage.log.local_log import LocalLog
from tests.simulation.disk import SimulatedDisk

Mutant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The future resolves, and readers see, what is only written."""
    patch.setattr(GroupSync, "wait_durable", _nothing)


def does_not_catch_up(patch: pytest.MonkeyPatch) -> None:
    """A writer binds to what it knew when it looked first."""
    original = LocalLog._catch_up

    def once(log: LocalLog) -> None:
        if log._writer.cursor.lsn == 0:
            original(log)

    patch.setattr(LocalLog, "_catch_up", once)
    patch.setattr(LocalLog, "_follow", _nothing)


def trusts_the_hint_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """What the page says counts, whichever boot wrote it."""
    patch.setattr(Hint, "written", property(lambda hint: hint._load(WRITTEN)))


def reads_the_target_after_the_sync(patch: pytest.MonkeyPatch) -> None:
    """What was written during the sync counts as synced."""

    def sync_written(sync: GroupSync, lsn: int) -> None:
        sync._journal.sync((sync._hint.synced or 0) + 1, sync._hint.written or 0)
        sync._hint.publish_synced(max(sync._hint.written or 0, lsn))

    patch.setattr(GroupSync, "_sync_written", sync_written)


def publishes_the_mark_one_too_far(patch: pytest.MonkeyPatch) -> None:
    """The commit after the synced ones counts as synced, too."""

    def publish(hint: Hint, lsn: int) -> None:
        hint._words.store(SYNCED, hint._sealed(lsn + 1))

    patch.setattr(Hint, "publish_synced", publish)


def syncs_again_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """The second fdatasync says that all is well, and is believed."""

    def write_again(journal: Journal, hint: Hint, synced: int) -> int:
        last = hint.written or 0
        journal.sync(synced + 1, last)
        hint.publish_synced(last)
        hint.note_sync_failed(False)
        return last

    patch.setattr(recovery, "write_again", write_again)


def proves_no_batches(patch: pytest.MonkeyPatch) -> None:
    """A frame of which the batches were torn is taken for whole."""
    patch.setattr(Journal, "verify_batches", _nothing)


def tells_nobody_of_losses(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a lost commit is told that it is on disk."""
    patch.setattr(Hint, "count_loss", _nothing)


def forgets_staged_files(patch: pytest.MonkeyPatch) -> None:
    """Files that were staged without sync are not synced with the commit that names them."""
    patch.setattr(Journal, "sync_staged", _nothing)


def accepts_a_sequence_twice(patch: pytest.MonkeyPatch) -> None:
    """A retry after an unknown outcome is stored again."""
    patch.setattr(binding._Binding, "_producer", _nothing)


def leaves_later_files_after_a_cut(patch: pytest.MonkeyPatch) -> None:
    """Log files of a torn tail stay, and come back when the log reaches their names."""
    original = SimulatedDisk.remove

    def remove(disk: SimulatedDisk, path: str) -> None:
        if not disk.keeps_removed:
            original(disk, path)

    patch.setattr(SimulatedDisk, "keeps_removed", True, raising=False)
    patch.setattr(SimulatedDisk, "remove", remove)


def replaces_files_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Others go on in files that were replaced after a failed sync."""
    patch.setattr(Hint, "count_roll", _nothing)


def takes_damage_for_a_tail(patch: pytest.MonkeyPatch) -> None:
    """A failed sync drops pages of another process, and the writer cuts instead of asking."""
    patch.setattr(LocalLog, "_is_passing", lambda *_: False)
    patch.setattr(Hint, "sync_failed", property(lambda _: False))


def reads_back_nothing(patch: pytest.MonkeyPatch) -> None:
    """After a failed sync the frames are not written again, but forgotten."""
    original = rewriting._read_unsynced

    def read(journal: Journal, synced: int) -> Any:
        return original(journal, synced)[0], []

    patch.setattr(rewriting, "_read_unsynced", read)


MUTANTS: tuple[Mutant, ...] = (
    acknowledges_before_the_sync,
    does_not_catch_up,
    trusts_the_hint_after_a_crash,
    reads_the_target_after_the_sync,
    publishes_the_mark_one_too_far,
    syncs_again_after_a_failure,
    proves_no_batches,
    tells_nobody_of_losses,
    forgets_staged_files,
    accepts_a_sequence_twice,
    leaves_later_files_after_a_cut,
    replaces_files_without_a_word,
    takes_damage_for_a_tail,
    reads_back_nothing,
)
