"""The process queue, transition by transition.

Finds: records that come out of order, twice or never, and offsets that pass what isn't done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

import kmq_spark as kmq


def _records(offsets: Iterable[int]) -> list[Any]:
    return [SimpleNamespace(offset=offset) for offset in offsets]


def _offsets(records: Iterable[Any]) -> list[int]:
    return [each.offset for each in records]


@pytest.fixture
def queue() -> kmq.ProcessQueue:
    """A queue of the records 0 to 9, put in disorder."""
    found = kmq.ProcessQueue()
    found.put_messages(_records([5, 6, 7, 8, 9, 2, 3, 4, 0, 1]))
    return found


def test_the_lowest_offsets_are_taken_first_whatever_the_order_in_which_they_were_put(
    queue: kmq.ProcessQueue,
):
    assert _offsets(queue.take_messages(3)) == [0, 1, 2]
    assert _offsets(queue.take_messages(100)) == [3, 4, 5, 6, 7, 8, 9]
    assert queue.take_messages(1) == []


def test_the_offset_to_commit_is_the_one_behind_the_last_that_was_taken(queue: kmq.ProcessQueue):
    queue.take_messages(2)
    queue.take_messages(2)
    assert queue.commit() == 4
    assert queue.state.consuming == ()


def test_a_commit_of_nothing_is_minus_one_and_changes_nothing(queue: kmq.ProcessQueue):
    before = queue.state
    assert queue.commit() == -1
    assert queue.state == before


def test_a_rollback_puts_everything_back_that_was_taken(queue: kmq.ProcessQueue):
    queue.take_messages(2)
    queue.commit()
    queue.take_messages(2)
    queue.take_messages(2)
    queue.rollback()
    assert _offsets(queue.take_messages(100)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_what_is_consumed_again_comes_next_and_what_was_taken_before_stays_taken(
    queue: kmq.ProcessQueue,
):
    queue.take_messages(2)
    again = queue.take_messages(2)
    queue.make_message_to_consume_again(again)
    assert _offsets(queue.state.consuming) == [0, 1]
    assert _offsets(queue.take_messages(3)) == [2, 3, 4]
    assert queue.commit() == 5


def test_a_commit_does_not_pass_a_record_that_was_put_back(queue: kmq.ProcessQueue):
    taken = queue.take_messages(3)
    queue.make_message_to_consume_again(taken[:1])
    assert queue.commit() == 0
    assert _offsets(queue.take_messages(1)) == [0]


def test_what_was_never_taken_can_not_be_put_back(queue: kmq.ProcessQueue):
    taken = queue.take_messages(1)
    queue.commit()
    queue.make_message_to_consume_again(taken + _records([77]))
    assert _offsets(queue.take_messages(100)) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_records_that_wait_are_taken_or_are_done_with_are_not_put_twice(queue: kmq.ProcessQueue):
    queue.take_messages(1)
    queue.commit()
    queue.take_messages(1)
    queue.put_messages(_records([0, 1, 2, 10, 10]))
    assert _offsets(queue.take_messages(100)) == [2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_who_puts_records_is_told_once_to_have_them_taken_until_all_are():
    queue = kmq.ProcessQueue()
    assert not queue.put_messages([])
    assert queue.put_messages(_records([0]))
    assert not queue.put_messages(_records([1]))
    assert len(queue.take_messages(5)) == 2
    assert not queue.put_messages(_records([2]))  # whoever takes comes again
    assert len(queue.take_messages(5)) == 1
    assert queue.take_messages(5) == []
    assert queue.put_messages(_records([3]))


def test_a_state_is_a_value_that_later_calls_do_not_change(queue: kmq.ProcessQueue):
    before = queue.state
    queue.take_messages(4)
    assert _offsets(before.waiting) == list(range(10))
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.offset = 3  # type: ignore[misc]


def test_when_something_was_taken_last_can_be_seen(queue: kmq.ProcessQueue):
    assert queue.state.last_taken == 0
    queue.take_messages(1)
    assert queue.state.last_taken > 1_500_000_000_000_000


@pytest.mark.parametrize("size", [0, -1, 1.5, "1", None, True])
def test_a_batch_has_at_least_one_record(queue: kmq.ProcessQueue, size: Any):
    with pytest.raises(kmq.InvalidRequestError, match="batch_size"):
        queue.take_messages(size)
