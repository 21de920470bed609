"""Wrong arguments of orderly consumers: the contracted error at once, and nothing written.

Finds: limits and pauses that mean nothing and pass, and consumers of their own dead letters.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn
from tests.unit.orderly.listening import Listener, committed, orderly


async def _awaited(_records: Any, _context: Any) -> kmq.OrderlyStatus:
    return kmq.OrderlyStatus.SUCCESS


@pytest.mark.parametrize(
    ("topics", "options", "error", "says"),
    [
        (["t"], {"max_reconsume_times": -2}, kmq.InvalidRequestError, "max_reconsume_times"),
        (["t"], {"max_reconsume_times": 1.5}, kmq.InvalidRequestError, "max_reconsume_times"),
        (["t"], {"max_reconsume_times": True}, kmq.InvalidRequestError, "max_reconsume_times"),
        (["t"], {"consume_batch_max_size": 0}, kmq.InvalidRequestError, "consume_batch_max_size"),
        (["t"], {"consume_batch_max_size": "9"}, kmq.InvalidRequestError, "consume_batch_max"),
        (["t"], {"suspend_current_queue_time": -1}, kmq.InvalidRequestError, "suspend_current"),
        (["t"], {"suspend_current_queue_time": None}, kmq.InvalidRequestError, "suspend_current"),
        (["t"], {"when_exhausted": "drop"}, kmq.InvalidRequestError, "dead_letter, skip, block"),
        (["t"], {"auto_commit": "yes"}, kmq.InvalidRequestError, "auto_commit"),
        (["t"], {"max_reconsume": 1}, TypeError, "max_reconsume"),
        (["t"], {"listener": None}, kmq.InvalidRequestError, "listener must be callable"),
        (["t"], {"listener": _awaited}, kmq.InvalidRequestError, "nobody would await"),
        (["t"], {"group": "a/b"}, kmq.InvalidRequestError, "group name"),
        (["t"], {"group": "x" * 245}, kmq.InvalidRequestError, "244"),
        (["t"], {"group": None}, kmq.InvalidRequestError, "group name"),
        (["nope"], {}, kmq.NotFoundError, r"Topic\[nope\]"),
        ([], {}, kmq.InvalidRequestError, "empty"),
        (None, {}, kmq.InvalidRequestError, "topics"),
        (5, {}, kmq.InvalidRequestError, "topics"),
        (["t", "%DLQ%g"], {}, kmq.InvalidRequestError, "dead letters"),
    ],
)
def test_wrong_arguments_are_refused_at_once_and_nothing_is_written(
    line: kmq.Store, topics: Any, options: dict[str, Any], error: type[Exception], says: str
):
    line.create_topic("%DLQ%g")
    before = lsn(line)
    given = {"group": "g", "listener": Listener(), **options}
    with pytest.raises(error, match=says):
        line.orderly_consumer(given.pop("group"), topics, given.pop("listener"), **given)
    assert lsn(line) == before


@pytest.mark.parametrize("value", ["no", None, 1, np.array([1, 2])], ids=str)
def test_a_listener_that_sets_auto_commit_to_what_is_neither_true_nor_false_is_suspended(
    line: kmq.Store, value: Any, caplog: pytest.LogCaptureFixture
):
    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        context.suspend_current_queue_time = 0.01
        context.auto_commit = value
        return kmq.OrderlyStatus.SUCCESS

    listener = Listener(answer)
    with orderly(line, listener):
        listener.hear(3)
    assert set(listener.offsets()) == {0}
    assert committed(line) == {}
    assert "auto_commit must be True or False" in caplog.text


@pytest.mark.parametrize("records", [None, 5, [1], [SimpleNamespace(offset="1")]], ids=str)
def test_a_process_queue_takes_records_only(records: Any):
    queue = kmq.ProcessQueue()
    for call in (queue.put_messages, queue.make_message_to_consume_again):
        with pytest.raises(kmq.InvalidRequestError, match="records with an offset"):
            call(records)
    assert queue.take_messages(1) == []


def test_a_read_only_store_has_no_orderly_consumers(tmp_path: Any):
    with ExitStack() as stack:
        stack.enter_context(kmq.open(tmp_path / "s")).create_topic("t")
        store = stack.enter_context(kmq.open(tmp_path / "s", read_only=True))
        with pytest.raises(kmq.IllegalStateError):
            store.orderly_consumer("g", ["t"], Listener())
