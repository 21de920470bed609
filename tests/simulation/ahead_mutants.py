"""Planted mistakes about records that receivers hold ahead, and their slips; each must be found."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from kmq_spark.client.queues import open_slip
from kmq_spark.client.queues.ahead import Ahead
from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.queues.open_slip import OpenSlip
from kmq_storage.format.queue_entries import SlipAnswerEntry
from kmq_storage.format.slip_words import Notes, SlipWords
from kmq_storage.log.binding import binding, queue_binding
from kmq_storage.log.checkpoints import checkpoint
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.maintenance import left_slips
from kmq_storage.queues import slips
from kmq_storage.queues.slips import OwnPage, SlipPage
from tests.simulation.mutants import Mutant, _nothing

# --- taking over ----------------------------------------------------------------------------


def counts_every_note(patch: pytest.MonkeyPatch) -> None:
    """Whoever took over meanwhile, a note is an answer."""
    patch.setattr(OpenSlip, "_was_counted", lambda *_: True)


def counts_no_doubtful_note(patch: pytest.MonkeyPatch) -> None:
    """Who finds that somebody took over is too late, though its note was read."""

    def refused(slip: OpenSlip, places: set[int]) -> bool:
        raise slip._too_late(places)

    patch.setattr(OpenSlip, "_was_counted", refused)


def takes_over_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """Who takes over says so in the log, and not on the slip."""
    patch.setattr(SlipPage, "take_over", _nothing)


def marks_a_slip_when_it_was_read(patch: pytest.MonkeyPatch) -> None:
    """What is noted between the two is neither read nor doubted."""

    def take_over(log: Any, queue_id: bytes, page: SlipPage, slip: Any) -> None:
        if not slip.taken:
            unit = slips.Unit((slips.ending(log, queue_id, page, slip, slips.TAKING_OVER),))
            log.commit([unit])
        ending = slips.ending(log, queue_id, page, slip, slips.TAKEN_OVER)
        page.take_over(slip)
        log.commit([slips.Unit((ending,))])

    patch.setattr(slips, "take_over", take_over)
    patch.setattr(open_slip, "take_over", take_over)


def deletes_old_slips_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """A receiver that lives after all notes where nobody will look."""
    patch.setattr(left_slips, "_mark", _nothing)


def hands_out_what_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Whose lock ended is had by the next one, whatever is noted of it."""
    patch.setattr(Queue, "check_slips", _nothing)
    patch.setattr(slips, "take_over_ended", _nothing)


def reads_no_notes(patch: pytest.MonkeyPatch) -> None:
    """Who takes over tells that nothing was noted."""
    original = slips.ending

    def ending(*what: Any) -> SlipAnswerEntry:
        entry = original(*what)
        return replace(entry, runs=()) if entry.by == slips.TAKEN_OVER else entry

    patch.setattr(slips, "ending", ending)


def ends_what_somebody_took_over(patch: pytest.MonkeyPatch) -> None:
    """The receiver tells what it noted though another one looks at it, or looked before."""
    patch.setattr(Queue, "check_slip", _nothing)


def looks_at_no_mark(patch: pytest.MonkeyPatch) -> None:
    """A note counts without a look at who took over."""
    original = OwnPage.note

    def note(page: OwnPage, *what: Any) -> bool:
        original(page, *what)
        return True

    patch.setattr(OwnPage, "note", note)


# --- notes ----------------------------------------------------------------------------------


def uses_one_number_for_all_rounds(patch: pytest.MonkeyPatch) -> None:
    """Each use of a slip has the same number."""
    patch.setattr(OwnPage, "next_round", lambda _: 1)


def counts_groups_in_part(patch: pytest.MonkeyPatch) -> None:
    """What is there of a group counts, though its receiver died before the rest."""
    original = SlipWords.notes

    def notes(seals: SlipWords, number: int, places: Any, groups: Any) -> Notes:
        rounds, _ = seals.parsed(1, places)
        done = {place for place, each in enumerate(rounds.tolist()) if each == number}
        return Notes(done, original(seals, number, places, groups).unproven - done)

    patch.setattr(SlipWords, "notes", notes)


def notes_what_is_answered_by_a_commit(patch: pytest.MonkeyPatch) -> None:
    """A record that was given back may be noted as done afterwards."""
    patch.setattr(OpenSlip, "answer_by_commit", _nothing)


def notes_on_a_slip_that_ended(patch: pytest.MonkeyPatch) -> None:
    """Of a round that was told, more is noted."""

    def end(slip: OpenSlip) -> SlipAnswerEntry:
        return slips.ending(slip._log, slip._queue_id, slip.page, slip._slip)

    patch.setattr(OpenSlip, "end", end)


def notes_when_the_lock_ended(patch: pytest.MonkeyPatch) -> None:
    """Whether it is late is not looked at, nor who took over."""
    looks_at_no_mark(patch)
    original = OpenSlip.__init__

    def begin(slip: OpenSlip, *what: Any) -> None:
        *others, held, since = what
        original(slip, *others, replace(held, until=1 << 62), since)

    patch.setattr(OpenSlip, "__init__", begin)


# --- holding ahead --------------------------------------------------------------------------


def hands_out_what_ended_in_hand(patch: pytest.MonkeyPatch) -> None:
    """What was held for too long is handed out all the same."""

    def take(held: Ahead, most: int) -> list[Delivery]:
        return [held._ready.popleft() for _ in range(min(most, len(held._ready)))]

    patch.setattr(Ahead, "take", take)


def gives_back_and_hands_out(patch: pytest.MonkeyPatch) -> None:
    """What was not used up in time is given back, and stays in hand."""

    original = Ahead._settle

    def settle(held: Ahead) -> None:
        back = list(held._ready)
        original(held)
        held._ready.extend(back)

    patch.setattr(Ahead, "_settle", settle)


def ends_and_begins_in_no_order(patch: pytest.MonkeyPatch) -> None:
    """Two threads end or begin a slip at once."""
    original = Ahead.__init__

    def begin(held: Ahead, *what: Any) -> None:
        original(held, *what)
        held._turning = nullcontext()  # type: ignore[assignment]

    patch.setattr(Ahead, "__init__", begin)


def gets_many_of_a_key(patch: pytest.MonkeyPatch) -> None:
    """Two records of one key are held ahead at once."""
    original = queue_binding.bound_acquire

    def bound(state: Any, entry: Any) -> Any:
        queue = state.queues.by_id(entry.queue_id)
        taken = queue.take

        def take(spans: Any, most: int, now: int, **_: Any) -> Any:
            return taken(spans, most, now)

        with pytest.MonkeyPatch.context() as here:
            here.setattr(Queue, "take", lambda _, *what, **__: take(*what))
            return original(state, entry)

    patch.setattr(binding, "bound_acquire", bound)


def forgets_slips_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Who begins at a checkpoint knows of nothing that may be noted."""
    original = checkpoint.restore_queues

    def restore(queues: Any, members: Any, rows: bytes) -> None:
        original(queues, members, rows)
        for queue in queues:
            queue.slips.clear()

    patch.setattr(checkpoint, "restore_queues", restore)


#: Not among them: what shows in one of a thousand seeds. A test of old slips finds it.
AHEAD_MUTANTS: tuple[Mutant, ...] = (
    counts_every_note,
    counts_no_doubtful_note,
    takes_over_without_a_mark,
    marks_a_slip_when_it_was_read,
    hands_out_what_is_noted,
    reads_no_notes,
    ends_what_somebody_took_over,
    looks_at_no_mark,
    uses_one_number_for_all_rounds,
    counts_groups_in_part,
    notes_what_is_answered_by_a_commit,
    notes_on_a_slip_that_ended,
    notes_when_the_lock_ended,
    hands_out_what_ended_in_hand,
    gives_back_and_hands_out,
    ends_and_begins_in_no_order,
    gets_many_of_a_key,
    forgets_slips_at_a_checkpoint,
)
