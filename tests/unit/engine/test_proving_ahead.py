"""Checksums worked out ahead by other threads: same answers, same order, nothing left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.packing import Part
from kmq_storage.log.reading.proving import Prover
from kmq_storage.model import Location
from tests.support.damage import flip_in_the_middle

ROWS, BATCHES = 600, 12
MESSAGE = pa.py_buffer(os.urandom(400_000))
WHOLE = [Part(0, MESSAGE.size, 0, checksum(MESSAGE))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of 12 batches of 2.4 MB."""
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            for first in range(0, ROWS * BATCHES, ROWS):
                values = [b"%4096d" % n for n in range(first, first + ROWS)]
                producer.send_batch("t", values)
                producer.flush()
    return tmp_path / "store"


def _provers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kmq-prove")}


def test_a_reader_that_is_dropped_half_way_leaves_no_thread_and_no_map(folder: Path):
    others = _provers()  # of tests before this one
    with kmq.open(folder, read_only=True) as store:
        reader = store.read("t", batch_rows=ROWS)
        assert reader.read_next_batch().num_rows == ROWS
        del reader
        gc.collect()
        for thread in _provers() - others:
            thread.join(60)
        assert not _provers() - others
        assert f"{folder}/{paths.STAGED_FOLDER}" not in Path("/proc/self/maps").read_text()


def test_damage_is_told_where_it_is_after_what_stands_before(folder: Path):
    with kmq.open(folder, read_only=True) as store:
        topic = store.log.refresh().topic("t")
        places = topic.places(0, 0, ROWS * BATCHES)
        file = folder / places[5].location.file
        flip_in_the_middle(file)
        found, reader = 0, store.read("t", batch_rows=ROWS)
        with pytest.raises(CorruptionError) as caught:
            for batch in reader:
                found += batch.num_rows
    assert found == caught.value.context["start"] == 5 * ROWS


def test_a_child_that_was_forked_meanwhile_reads_on(folder: Path):
    with kmq.open(folder, read_only=True) as store:
        reader = store.read("t", batch_rows=ROWS)
        reader.read_next_batch()
        child = os.fork()
        if child == 0:
            os._exit(sum(batch.num_rows for batch in reader) != ROWS * (BATCHES - 1))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_a_proof_is_the_same_whoever_finds_it_out(begun: bool, changed: bool):
    prover, place = Prover(), Location("f", 0, MESSAGE.size)
    other = pa.py_buffer(MESSAGE.to_pybytes()[:-1] + b"?")
    message = other if changed else MESSAGE
    if begun:
        prover.begin(place, message, WHOLE)
    assert prover.holds(place, message, WHOLE) is (message.equals(MESSAGE))


def test_a_proof_of_other_parts_proves_nothing():
    prover, place = Prover(), Location("f", 0, MESSAGE.size)
    prover.begin(place, MESSAGE, [Part(0, 10, 0, checksum(MESSAGE.slice(0, 10)))])
    assert not prover.holds(place, MESSAGE, [Part(0, MESSAGE.size, 0, 1)])


def test_threads_that_get_no_turn_hold_nothing_that_was_read(monkeypatch: pytest.MonkeyPatch):
    queued: list[object] = []
    monkeypatch.setattr(
        "kmq_storage.log.reading.proving.ThreadPoolExecutor.submit",
        lambda pool, work: queued.append(work),
    )
    prover, places = Prover(), [Location("file", at, MESSAGE.size) for at in range(3)]
    message = pa.py_buffer(bytearray(MESSAGE))
    before = sys.getrefcount(message)
    for place in places:
        prover.begin(place, message, WHOLE)
    assert prover.holds(places[0], message, WHOLE)
    prover.forget()
    assert len(queued) == 3
    assert sys.getrefcount(message) == before
