"""The threads of a producer end with it.

Finds threads that are left by a producer whose opening was interrupted, and idle ones of a closed
producer that uploaded files.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.environment import SYSTEM
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.uploads import Uploads
from kmq_storage.objects.bucket_files import BucketFiles
from tests.support.memory_bucket import MemoryBucket


def _bucket() -> BucketFiles:
    return BucketFiles(MemoryBucket(f"memory-bucket://{uuid.uuid4().hex}"))


def _begun_since(before: set[Thread]) -> list[Thread]:
    """The threads that began meanwhile and don't end soon."""
    new = [each for each in threading.enumerate() if each not in before and each.ident]
    for each in new:
        each.join(5.0)
    return [each for each in new if each.is_alive()]


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("name", ["kmq-sync", "kmq-producer"])
def test_ctrl_c_while_a_producer_opens_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, has_begun: bool
):
    start = Thread.start

    def interrupted(thread: Thread) -> None:
        if has_begun or thread.name != name:
            start(thread)
        if thread.name == name:
            raise KeyboardInterrupt

    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        before = {*threading.enumerate()}
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Thread, "start", interrupted)
            store.producer()
        assert _begun_since(before) == []
        with store.producer() as producer:
            assert producer.send("t", b"v").result(5).offset == 0


def test_a_closed_producer_of_a_bucket_keeps_no_threads_for_uploads():
    identity = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))
    with kmq.Store(BucketLog(_bucket(), identity, SYSTEM), maintenance=False) as store:
        store.create_topic("t")
        before = {*threading.enumerate()}
        producer = store.producer()
        producer.send_batch("t", [bytes(500_000)] * 10).result(30)
        uploading = [each for each in threading.enumerate() if each.name.startswith("kmq-stage")]
        assert uploading
        producer.close()
        assert _begun_since(before) == []
        with pytest.raises(kmq.ClosedError, match="the producer is closed"):
            producer.send_arrow("t", pa.table({"value": [bytes(500_000)] * 10}))


def test_what_comes_after_the_end_of_uploads_is_refused_and_the_rest_is_stored():
    files = _bucket()
    uploads = Uploads(files)
    uploads.begin(b"1" * 16, pa.py_buffer(b"one"))
    uploads.close()
    with pytest.raises(kmq.ClosedError):
        uploads.begin(b"2" * 16, pa.py_buffer(b"two"))
    uploads.wait_for([b"1" * 16, b"2" * 16])
    assert len(files.list("staged")) == 1
