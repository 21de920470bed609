"""Finds tests of slips that have gone blind: each planted mistake makes one of them fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client import queue, queue_ahead
from kmq_spark.client.queue_ahead import OpenSlip
from kmq_storage.log.queue_state import Queue
from kmq_storage.slips import Page
from tests.unit.queues import test_slips

Mutant = Callable[[pytest.MonkeyPatch], None]


def counts_every_note(patch: pytest.MonkeyPatch) -> None:
    """Whoever took over meanwhile, a note is an answer."""
    patch.setattr(OpenSlip, "_was_counted", lambda *_: True)


def takes_over_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """Who takes over says so in the log, and not on the slip."""
    patch.setattr(Page, "take_over", lambda *_: None)


def hands_out_what_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Whose lock ended is had by the next one, whatever is noted of it."""
    patch.setattr(Queue, "check_slips", lambda *_: None)
    patch.setattr(queue, "bury_all", lambda *_: None)  # it takes slips over, too


def reads_no_notes(patch: pytest.MonkeyPatch) -> None:
    """Who takes over tells that nothing was noted."""
    patch.setattr(Page, "noted", lambda *_: [])


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
    url = str(tmp_path / "store")
    with kmq.open(url, durability="os") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_ahead, "PATIENCE", 1e6)
        mutant(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception, kmq.LeaseExpiredError)):
            finder(store, url, None, monkeypatch)
