"""Finds tests of slips that have gone blind: each planted mistake makes one of them fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import ahead as queue_ahead
from kmq_spark.client.queues import queue
from kmq_spark.client.queues.open_slip import OpenSlip
from kmq_storage.format.slip_words import PLACES, Notes, SlipWords
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.objects.local import LocalDisk
from kmq_storage.queues import slips
from kmq_storage.queues.slips import OwnPage, SlipPage, boot_of
from tests.damage import test_slips as test_damaged
from tests.data.make_golden_sealed_slips import make
from tests.support.clock import Clock
from tests.support.storage import open_folder
from tests.unit.queues import test_slip_words, test_slips

Mutant = Callable[[pytest.MonkeyPatch], None]


def counts_every_note(patch: pytest.MonkeyPatch) -> None:
    """Whoever took over meanwhile, a note is an answer."""
    patch.setattr(OpenSlip, "_was_counted", lambda *_: True)


def takes_over_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Who takes over says so in the log, and not on the slip."""
    patch.setattr(SlipPage, "take_over", lambda *_: None)


def hands_out_what_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Whose lock ended is had by the next one, whatever is noted of it."""
    patch.setattr(Queue, "check_slips", lambda *_: None)
    patch.setattr(queue, "bury_all", lambda *_: None)  # it takes slips over, too


def reads_no_notes(patch: pytest.MonkeyPatch) -> None:
    """Who takes over tells that nothing was noted."""
    patch.setattr(slips, "noted", lambda *_: [])


# --- notes ----------------------------------------------------------------------------------


def counts_what_proves_nothing(patch: pytest.MonkeyPatch) -> None:
    """A word tells its round, whatever its check bits are."""
    parsed = SlipWords.parsed

    def as_if_sealed(seals: SlipWords, first: int, words: Sequence[int]) -> Any:
        values = [word & (1 << 40) - 1 for word in words]
        pairs = enumerate(values, first)
        return parsed(
            seals, first, [seals.sealed_at([at], each >> 11, each & 2047)[0] for at, each in pairs]
        )

    patch.setattr(SlipWords, "parsed", as_if_sealed)


def counts_groups_in_part(patch: pytest.MonkeyPatch) -> None:
    """What is there of a group counts, though a part of it is lost."""
    notes = SlipWords.notes

    def all_there(seals: SlipWords, *words: Any) -> Notes:
        found = notes(seals, *words)
        return Notes(found.done | found.unproven, set())

    patch.setattr(SlipWords, "notes", all_there)


def proves_the_round_alone(patch: pytest.MonkeyPatch) -> None:
    """Every place of every slip has the same check bits for a round."""
    seals = SlipWords(bytes(16))._mixed
    original = SlipWords.__init__

    def alike(self: SlipWords, slip_id: bytes) -> None:
        original(self, slip_id)
        self._mixed = np.full_like(seals, seals[0])
        self._mixes = self._mixed.tolist()

    patch.setattr(SlipWords, "__init__", alike)


def has_the_group_counted_first(patch: pytest.MonkeyPatch) -> None:
    """The word of a group is set before its notes, and does not tell how many they are."""
    note = OwnPage.note

    def first_the_group(page: OwnPage, places: Sequence[int], number: int, group: int) -> bool:
        (word,) = page._seals.sealed_at([PLACES + group], number, len(places))
        page._words.store(PLACES + group, word)
        return note(page, places, number, group)

    counts_groups_in_part(patch)
    patch.setattr(OwnPage, "note", first_the_group)


def _damaged_slips(tmp_path: Path) -> None:
    folder = tmp_path / "golden"
    make(folder, boot_of(LocalDisk(folder)))
    test_damaged.test_what_is_damaged_never_counts_as_acknowledged(folder, tmp_path)


def _moved_words(_: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_slip_words, "FIRST", SlipWords(bytes(range(16))))
        test_slip_words.test_a_word_at_another_place_proves_nothing()


def _killed_in_a_group(tmp_path: Path) -> None:
    log = open_folder(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        test_slip_words.test_killed_before_any_store_all_or_none_is_noted(log, patch, [3, 70])


@pytest.mark.parametrize(
    ("mutant", "finder"),
    [
        (counts_what_proves_nothing, _damaged_slips),
        (counts_groups_in_part, _damaged_slips),
        (proves_the_round_alone, _moved_words),
        (has_the_group_counted_first, _killed_in_a_group),
    ],
    ids=lambda each: each.__name__,
)
def test_a_mistake_that_is_planted_in_notes_is_found(
    mutant: Mutant, finder: Callable[[Path], Any], tmp_path: Path
):
    finder(tmp_path / "sound")
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            finder(tmp_path / "mutant")


# --- taking over ----------------------------------------------------------------------------

_BEFORE = test_slips.test_who_is_stopped_before_it_notes_is_told_that_it_is_too_late
_AFTER = test_slips.test_who_is_stopped_after_it_noted_has_acknowledged


@pytest.mark.parametrize(
    ("mutant", "finder"),
    [
        (counts_every_note, _BEFORE),
        (takes_over_without_a_word, _BEFORE),
        (hands_out_what_is_noted, _AFTER),
        (reads_no_notes, _AFTER),
    ],
    ids=lambda each: each.__name__,
)
def test_a_mistake_that_is_planted_in_slips_is_found(
    mutant: Mutant,
    finder: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    clock, url = Clock(), str(tmp_path / "store")
    with (
        test_slips.opened(url, clock) as store,
        test_slips.opened(url, clock) as other_store,
        pytest.MonkeyPatch.context() as patch,
    ):
        other = test_slips.filled(store, other_store)
        patch.setattr(queue_ahead, "PATIENCE", 1e6)
        mutant(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception, kmq.LeaseExpiredError)):
            finder(store, other, clock, None, monkeypatch)
