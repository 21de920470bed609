"""Properties that are computed once: what a child gets that is forked while one is computed.

Finds: a child that waits for ever for a thread that only its parent has.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kmq_spark
import kmq_storage
from kmq_spark.client.keyed.batches import IndexSequence
from kmq_storage.cached import cached_property


class _Slow:
    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    @cached_property
    def answer(self) -> list[int]:
        self.began.set()
        self.go_on.wait(30)
        return [42]


def test_a_child_that_is_forked_while_a_property_is_computed_does_not_wait_for_that():
    slow, quick = _Slow(), _Slow()
    quick.go_on.set()
    computing = threading.Thread(target=lambda: slow.answer)
    computing.start()
    assert slow.began.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if quick.answer == [42] else 1)
    slow.go_on.set()
    assert os.waitpid(child, 0)[1] == 0
    computing.join()
    assert slow.answer is slow.answer


def test_no_module_uses_the_property_whose_lock_a_fork_may_leave_taken():
    for package in (kmq_spark, kmq_storage):
        for source in Path(package.__path__[0]).rglob("*.py"):
            if source.name != "cached.py":
                text = source.read_text()
                assert "from functools import cached_property" not in text, source
                assert "functools.cached_property" not in text, source


def test_threads_that_look_at_the_same_indexes_at_the_same_time_see_them():
    both = threading.Barrier(2, timeout=30)

    def worked_out(_first: int, _end: int) -> list[int]:
        both.wait()
        return [7, 8]

    indexes = IndexSequence(2, worked_out)
    with ThreadPoolExecutor(2) as threads:
        looks = [threads.submit(indexes.__getitem__, at) for at in (0, 1)]
        assert [look.result() for look in looks] == [7, 8]
    assert indexes == [7, 8]
