"""What follows from each answer of a listener, in both modes, and for how long.

Finds: answers that commit when they must not, limits that are off by one, and pauses beyond bounds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.orderly import listening
from kmq_spark.client.orderly.rules import (
    OrderlySettings,
    Step,
    decide,
    is_told_of_letters,
    is_worth_a_warning,
    pause_after,
)
from tests.unit.orderly.listening import COMMIT, ROLLBACK, SUCCESS, SUSPEND

WITHOUT_END = OrderlySettings()


@pytest.mark.parametrize(
    ("status", "auto", "by_hand"),
    [
        (SUCCESS, Step.COMMIT, Step.KEEP),
        (COMMIT, Step.COMMIT, Step.COMMIT),
        (ROLLBACK, Step.COMMIT, Step.ROLLBACK),
        (SUSPEND, Step.AGAIN, Step.AGAIN),
    ],
)
def test_each_answer_has_its_step_in_both_modes(
    status: kmq.OrderlyStatus, auto: Step, by_hand: Step
):
    assert decide(status, [0], WITHOUT_END, auto_commit=True) is auto
    assert decide(status, [0], WITHOUT_END, auto_commit=False) is by_hand


@pytest.mark.parametrize(
    ("most", "counts", "step"),
    [
        (-1, [2**31], Step.AGAIN),
        (0, [0], Step.BURY),
        (2, [1], Step.AGAIN),
        (2, [2], Step.BURY),
        (2, [5, 2], Step.BURY),
        (2, [5, 1], Step.AGAIN),  # one of them has attempts left: all are tried again
    ],
)
@pytest.mark.parametrize("auto_commit", [True, False])
def test_attempts_are_used_up_after_the_first_and_as_many_as_were_allowed(
    most: int, counts: list[int], step: Step, auto_commit: bool
):
    settings = OrderlySettings(max_reconsume_times=most)
    assert decide(SUSPEND, counts, settings, auto_commit=auto_commit) is step


@pytest.mark.parametrize(
    ("end", "step"), [("dead_letter", Step.BURY), ("skip", Step.SKIP), ("block", Step.AGAIN)]
)
def test_what_becomes_of_a_poisonous_record_is_chosen(end: str, step: Step):
    settings = OrderlySettings(max_reconsume_times=3, when_exhausted=end)
    assert decide(SUSPEND, [3], settings, auto_commit=True) is step


@pytest.mark.parametrize(
    ("asked", "own", "seconds"),
    [
        (-1, 1.0, 1.0),
        (-1, 0.0, 0.010),
        (-1, 99.0, 30.0),
        (0.0, 1.0, 0.010),
        (-2, 1.0, 0.010),
        (0.010, 1.0, 0.010),
        (5.0, 1.0, 5.0),
        (30.0, 1.0, 30.0),
        (30.1, 1.0, 30.0),
        (1e9, 1.0, 30.0),
    ],
)
@pytest.mark.parametrize("step", [Step.AGAIN, Step.ROLLBACK])
def test_a_pause_lasts_from_ten_milliseconds_to_thirty_seconds(
    asked: float, own: float, seconds: float, step: Step
):
    settings = OrderlySettings(suspend_current_queue_time=own)
    assert pause_after(step, asked, settings) == seconds


@pytest.mark.parametrize("step", [Step.COMMIT, Step.KEEP, Step.BURY, Step.SKIP])
def test_what_does_not_come_again_makes_no_pause(step: Step):
    assert pause_after(step, 5.0, WITHOUT_END) is None


def test_a_listener_may_choose_the_pause_as_a_duration():
    context = kmq.OrderlyContext("t", 0, True, (0,))
    assert context.suspend_current_queue_time == -1
    context.suspend_current_queue_time = timedelta(milliseconds=20)
    assert context.suspend_current_queue_time == 0.020


@pytest.mark.parametrize("wrong", ["1", None, float("nan"), float("inf"), True, [1]])
def test_a_pause_that_is_none_is_refused_where_the_listener_sets_it(wrong: Any):
    context = kmq.OrderlyContext("t", 0, True, (0,))
    with pytest.raises(kmq.InvalidRequestError, match="suspend_current_queue_time"):
        context.suspend_current_queue_time = wrong


def test_who_looks_after_it_hears_of_a_blocked_queue_ever_more_rarely():
    told = [count for count in range(200) if is_worth_a_warning([0, count])]
    assert told == [15, 31, 63, 127]


def test_who_looks_after_it_hears_at_once_that_letters_can_not_be_made_and_then_more_rarely():
    settings = OrderlySettings(max_reconsume_times=3)
    told = [count for count in range(3, 40) if is_told_of_letters([3, count], settings)]
    assert told == [3, 4, 6, 10, 18, 34]


def test_the_defaults_are_rocketmqs():
    own = OrderlySettings()
    assert (own.suspend_current_queue_time, own.consume_batch_max_size) == (1.0, 1)
    assert (own.max_reconsume_times, own.auto_commit) == (-1, True)
    turn = (listening._TURN_SECONDS, listening._NEXT_TURN, listening._OWNER_SECONDS)
    assert turn == (60.0, 0.010, 20.0)
