"""Redriving: the dead letters of a queue go back to it; those of other queues stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.client.queues.dead_letters import MOVED, home_of, is_letter_of, moving, room_in
from kmq_spark.client.queues.delivery import Delivery, runs_of_deliveries
from kmq_spark.client.queues.letter_schedules import schedules_again
from kmq_spark.client.queues.reading import missing_of
from kmq_spark.errors import QueueFullError
from kmq_storage.format.queue_entries import ACK, EXTEND, Run
from kmq_storage.log.state.queues.queue import Queue as StoredQueue
from kmq_storage.queues import handing
from kmq_storage.queues.lost_records import finish_missing

if TYPE_CHECKING:
    from kmq_spark.client.queues.queue import Queue


def move_back(letters: Queue, target: StoredQueue, most: int | None) -> int:
    """Move back the letters that came from a queue, as far as they fit; free the others at the end.

    QueueFullError when none of them fits.
    """
    moved = 0
    others: list[Run] = []
    try:
        while (most is None or moved < most) and (
            acquired := letters._acquire(MOVED, letters._deadline(0.0), plain=True)
        ):
            found, _ = acquired
            letters._log.refresh()
            held = letters._deliveries(found.runs, found.until)
            _finish_lost(letters, missing_of(found.runs, {each.place for each in held}))
            mine = [each for each in held if is_letter_of(letters._log.state, target, each)]
            mine = mine if most is None else mine[: most - moved]
            fitting = mine[: _room_now(letters, target)] or mine[:1]
            kept = {each.place for each in fitting}
            letters._answer(EXTEND, others, found.until)  # else they would come again for ever
            left = runs_of_deliveries([each for each in held if each.place not in kept])
            others = handing.merged([*others, *left])
            moved += _move(letters, fitting, target)
            if len(fitting) < len(mine):  # those behind them must not go first
                break
    except QueueFullError:
        if not moved:
            raise
    finally:
        letters._ahead.give_back(others)
    return moved


def _finish_lost(letters: Queue, lost: list[Run]) -> None:
    """Finish letters that a repair cut out, so that they take no place; the log warns of them."""
    if lost:
        finish_missing(letters._log, letters._reader, letters._live(), lost)


def _room_now(letters: Queue, target: StoredQueue) -> int:
    log = letters._log
    return room_in(log, log.state.queues.by_id(target.id) or target)


def _move(letters: Queue, some: list[Delivery], target: StoredQueue) -> int:
    if some:
        log = letters._log
        entry = handing.answer(log, letters._live(), ACK, runs_of_deliveries(some))
        try:
            records = [(each, each.properties) for each in some]
            back = [each.properties if home_of(each) == target.name else {} for each in some]
            log.commit([moving(log, target, records, *schedules_again(target, back), entry)])
        except BaseException:  # of a full queue, for example
            letters._give_back(some)
            raise
    return len(some)
