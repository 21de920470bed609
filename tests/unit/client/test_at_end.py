"""Programs that end without a close: what was sent is stored, and threads may go on sending.

Finds: records that are lost in a child of multiprocessing, or in a thread that outlives its main
thread; a child that does something in its parent's name; a wait of asyncio that no program ends.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms

_IN_A_CHILD = """
import multiprocessing, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import kmq_spark as kmq

def thread(url):
    producer = kmq.open(url, durability="os").producer()
    def send():
        for n in range(20):
            producer.send("t", b"%d" % n)
            time.sleep(0.01)
    threading.Thread(target=send).start()

def pool(url):
    producer = kmq.open(url, durability="os").producer()
    executor = ThreadPoolExecutor(2)
    def send(n):
        time.sleep(0.01)
        producer.send("t", b"%d" % n)
    for n in range(20):
        executor.submit(send, n)

if __name__ == "__main__":
    url, how, what = sys.argv[1:]
    context = multiprocessing.get_context(how)
    child = context.Process(target=globals()[what], args=(url,))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


def _run(script: str, folder: Path, *arguments: str) -> str:
    file = folder / "program.py"
    file.write_text(script)
    command = [sys.executable, str(file), str(folder / "store"), *arguments]
    done = subprocess.run(command, timeout=240, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("what", ["thread", "pool"])
@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_threads_of_a_child_send_to_their_end(tmp_path: Path, how: str, what: str):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_topic("t")
        _run(_IN_A_CHILD, tmp_path, how, what)
        assert store.offsets("t") == {0: (0, 20)}


_REPORT = """
import atexit, sys
import kmq_spark as kmq
url = sys.argv[1]
atexit.register(lambda: print(kmq.open(url).offsets("t")))
producer = kmq.open(url, durability="os").producer(linger=60.0)
producer.send("t", b"x")
"""


def test_what_a_program_registered_before_its_producer_sees_what_that_sent(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_topic("t")
    assert _run(_REPORT, tmp_path) == "{0: (0, 1)}\n"


_POSITIONS = """
import multiprocessing, sys
from kmq_spark import openmessaging as oms

def wait(event):
    event.wait()

settings = oms.KeyValue().put("STORE_PATH", sys.argv[1])
consumer = oms.PullConsumer(settings)
consumer.attach_queue("q", ["t"])
for _ in range(10):
    consumer.poll()
context = multiprocessing.get_context("fork")
event = context.Event()
child = context.Process(target=wait, args=(event,))
child.start()
for _ in range(50):
    consumer.poll()
consumer.shutdown()
event.set()
child.join()
sys.exit(child.exitcode)
"""


def test_a_forked_child_moves_no_position_of_its_parent(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store, store.producer() as producer:
        store.create_topic("t")
        producer.send_batch("t", [b"%d" % n for n in range(100)]).result()
    _run(_POSITIONS, tmp_path)
    settings = oms.KeyValue().put("STORE_PATH", str(tmp_path / "store"))
    with oms.PullConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"])
        found = consumer.poll()
    assert found is not None
    assert found.get_body() == b"60"


_WAITING = """
import asyncio, atexit, sys, threading, time
from kmq_spark import aio

begun = threading.Event()

async def wait(url, ends):
    store = await aio.open(url)
    await store.create_topic("t")
    await store.create_queue("q")
    calls = (
        (await store.queue("q")).receive(timeout=None),
        (await store.keyed_queues("k")).receive("a", timeout=None),
        (await store.consumer("g", topics=["t"])).poll(timeout=None),
    )
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0.3)
    begun.set()
    if not ends:
        await asyncio.wait(tasks)
    return tasks

url, how = sys.argv[1:]
if how == "left":
    loop = asyncio.new_event_loop()
    tasks = loop.run_until_complete(wait(url, True))
    for task in tasks:
        task._log_destroy_pending = False
else:
    threading.Thread(target=lambda: asyncio.run(wait(url, False)), daemon=True).start()
    begun.wait()
if how == "slowly":  # its loop has time to go on
    atexit.register(time.sleep, 0.5)
print("left")
"""


@pytest.mark.parametrize("how", ["left", "daemon", "slowly"])
def test_a_program_ends_though_tasks_of_asyncio_wait_for_records(tmp_path: Path, how: str):
    assert _run(_WAITING, tmp_path, how) == "left\n"
