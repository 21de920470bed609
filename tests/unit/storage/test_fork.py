"""Forked children: each resource is reopened, whatever becomes of the others, and none of them
waits for a thread that only its parent has."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import pytest

from kmq_storage.errors import IllegalStateError
from kmq_storage.objects import fork
from kmq_storage.objects.bucket import Fetched, Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.read_cache import HEAD_BYTES, ReadCache
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, open_log, unit_of


class _Resource:
    """Notes that it was reopened; one of a store that is gone can't be."""

    def __init__(self, *, is_gone: bool) -> None:
        self.is_gone = is_gone
        self.is_reopened = False

    def reopen(self) -> None:
        if self.is_gone:
            raise FileNotFoundError("the folder was removed")
        self.is_reopened = True


def test_a_resource_that_cannot_be_reopened_keeps_back_no_other(monkeypatch: pytest.MonkeyPatch):
    resources = [_Resource(is_gone=number % 2 == 0) for number in range(8)]
    monkeypatch.setattr(fork, "_known", WeakKeyDictionary[object, str]())
    for each in resources:
        fork.reopen_in_child(each.reopen)
    with pytest.raises(FileNotFoundError):
        fork._after_fork_in_child()
    assert [each.is_reopened for each in resources] == [not each.is_gone for each in resources]


class _Slow(MemoryBucket):
    """A bucket that, once it is slow, answers when it is told to; no forked child has one."""

    def __init__(self) -> None:
        super().__init__("memory-bucket://forks")
        self._process = os.getpid()
        self.is_slow = False
        self.asked, self.answers = threading.Event(), threading.Event()

    def _wait(self) -> None:
        if os.getpid() != self._process:
            raise IllegalStateError("a bucket of the parent")
        if self.is_slow:
            self.asked.set()
            assert self.answers.wait(60)

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        self._wait()
        return super().get(name, start, length)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        self._wait()
        return super().put_if_absent(name, buffers)


def _is_refused_in_child(*calls: Callable[[], object]) -> bool:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)  # which ends it, should it wait for a thread of the parent
        refused = 0
        try:
            for call in calls:
                try:
                    call()
                except IllegalStateError:
                    refused += 1
        finally:
            os._exit(0 if refused == len(calls) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("work", ["append", "refresh"])
def test_a_child_waits_for_no_thread_that_used_the_log_of_a_bucket(work: str):
    bucket = _Slow()
    log = open_log(BucketFiles(bucket))
    make_topic(log)
    unit = unit_of(log.files, [b"x"])
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: log.append([unit]),
        "refresh": log.refresh,
    }
    bucket.is_slow = True
    thread = threading.Thread(target=calls[work])
    thread.start()
    assert bucket.asked.wait(60)
    try:
        assert _is_refused_in_child(*calls.values())
    finally:
        bucket.answers.set()
        thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_waits_for_no_part_that_a_thread_of_its_parent_fetches():
    bucket = _Slow()
    bucket.put("staged/1", [bytes(10)])
    cache = ReadCache(bucket, 10 * HEAD_BYTES, None)
    bucket.is_slow = True
    cache.fetch_ahead("staged/1", 0, 10)
    assert bucket.asked.wait(60)
    try:
        with cache._lock:
            assert _is_refused_in_child(lambda: cache.part("staged/1", 0, 10))
    finally:
        bucket.answers.set()
        cache.close()
