"""Eight writers on one bucket, of which some are killed; and a server that is killed itself.

Finds an acknowledged commit that is gone, and one that is there twice since its writer tried
again without looking.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.open import open_files
from tests.support.s3 import S3Server, missing_versitygw, start_versitygw
from tests.support.storage import make_topic, open_log, send, values_of

pytestmark = pytest.mark.chaos

_WRITE = """
import sys, threading
import kmq_spark as kmq

def write(name):
    with kmq.open(sys.argv[1], maintenance=False) as store, store.producer(linger=0.0) as producer:
        for n in range(int(sys.argv[3])):
            producer.send("t", f"{name}-{n}".encode()).result(120)
            print(f"{name}-{n}", flush=True)

threads = [threading.Thread(target=write, args=(f"{sys.argv[2]}.{k}",)) for k in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_eight_writers_of_which_two_are_killed_lose_and_double_nothing(
    versitygw: S3Server, monkeypatch: pytest.MonkeyPatch
):
    for name, value in versitygw.environment().items():
        monkeypatch.setenv(name, value)
    url = versitygw.new_url()
    with kmq.open(url) as store:
        store.create_topic("t")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITE, url, str(n), "2000" if n == 0 else "25"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    acknowledged: list[str] = []
    with ThreadPoolExecutor(len(writers)) as pool:
        reading = [pool.submit(_lines_of, writer) for writer in writers]
        for writer in writers[1:]:
            assert writer.wait(200) == 0
        writers[0].kill()
        acknowledged += [line for each in reading for line in each.result(60)]
    with kmq.open(url, read_only=True) as store:
        stored = [v.decode() for v in store.read("t").read_all()["value"].to_pylist()]
        lsns = [commit.lsn for commit in store.commits()]
    counts = Counter(stored)
    assert lsns == list(range(1, len(lsns) + 1))
    assert set(counts.values()) == {1}
    assert set(acknowledged) <= set(stored)
    assert sum(not line.startswith("0.") for line in acknowledged) == 3 * 2 * 25
    assert len(stored) - len(acknowledged) <= 2  # what was killed between commit and answer
    for name in {line.partition("-")[0] for line in stored}:
        own = [int(v.partition("-")[2]) for v in stored if v.startswith(f"{name}-")]
        assert own == list(range(len(own)))


def _lines_of(writer: subprocess.Popen[str]) -> list[str]:
    assert writer.stdout is not None
    with writer, writer.stdout as lines:
        return [line.strip() for line in lines if line.endswith("\n")]


@pytest.fixture
def own_server(versitygw: S3Server, tmp_path: Path) -> Iterator[S3Server]:
    """A server that may be killed; the shared one only shows that the program is there."""
    assert missing_versitygw(None) == ""
    server = start_versitygw(tmp_path / "objects")
    yield server
    server.kill()


def test_a_server_that_is_killed_in_the_middle_of_commits_loses_nothing(own_server: S3Server):
    url, options = own_server.new_url(), own_server.options()
    handles = [open_log(open_files(url, storage_options=options)) for _ in range(3)]
    make_topic(handles[0])
    stop, sent = threading.Event(), list[bytes]()

    def write(number: int) -> None:
        for n in count():
            if stop.is_set():
                return
            send(handles[number], b"%d-%d" % (number, n))
            sent.append(b"%d-%d" % (number, n))

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        try:
            for _ in range(3):
                _wait_for_more(sent, writing)
                own_server.kill()
                time.sleep(0.1)
                own_server.restart()
            _wait_for_more(sent, writing)
        finally:
            stop.set()
        for each in writing:
            each.result(120)
    stored = values_of(open_log(open_files(url, storage_options=options)))
    assert sorted(stored) == sorted(sent)


def _wait_for_more(sent: Sequence[bytes], writing: Sequence[Future[None]]) -> None:
    before = len(sent)
    while len(sent) < before + 10:
        assert not any(each.done() for each in writing)
        time.sleep(0.01)
