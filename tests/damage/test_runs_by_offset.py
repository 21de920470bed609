"""A damaged run of a keyed topic, read by offset: each whole record is there, all others told.

Finds: a damaged batch that costs records of others, errors that name neither the place nor the
queues of the damage, and readers that don't see that a file was put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.errors import CorruptionError
from kmq_storage import limits
from kmq_storage.format.layout import Layout
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Chunk

QUEUES, MESSAGES, BATCH_ROWS = 20, 30, 25
ALL = QUEUES * MESSAGES
NAMES = [f"queue {n:02}" for n in range(QUEUES)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose only topic has one run of small batches, and nothing else."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for number in range(MESSAGES):
            queues.put_batch(NAMES, [_message(n, number) for n in range(QUEUES)])
        assert store.seal().segments == 1
        store.checkpoint()
    return tmp_path / "store"


def _message(queue: int, number: int) -> bytes:
    return b"<%d in %d>" % (number, queue)


def _damage(folder: Path, *messages: bytes) -> tuple[Path, bytes]:
    """The run's file, and its bytes before."""
    file = max(folder.glob("segments/*/0/*.arrow"))
    whole = contents = file.read_bytes()
    for message in messages:
        at = contents.index(message)
        contents = contents[:at] + b"?" + contents[at + 1 :]
    file.write_bytes(contents)
    return file, whole


def _consume(consumer: kmq.Consumer) -> tuple[dict[int, bytes], list[kmq.KmqError]]:
    """All records that can be had by going on where errors say, and these errors."""
    found: dict[int, bytes] = {}
    errors: list[kmq.KmqError] = []
    while True:
        try:
            records = consumer.consume(7, timeout=0)
        except (CorruptionError, kmq.DataLossError) as error:
            errors.append(error)
            consumer.seek("inbox", 0, int(str(error.context["end"])))
            continue
        if not records:
            return found, errors
        found |= {record.offset: record.value for record in records}


@pytest.mark.parametrize("hurt", [[7], [3, 7], [0], [19]])
def test_readers_by_offset_get_each_record_of_whole_batches(folder: Path, hurt: list[int]):
    _damage(folder, *(_message(queue, 11) for queue in hurt))
    with kmq.open(folder, read_only=True) as store:
        found, errors = _consume(store.consumer(topics=["inbox"]))
    assert found == {at: _message(at % QUEUES, at // QUEUES) for at in found}
    assert all(f"go on from offset {e.context['end']}," in str(e) for e in errors)
    lost = set(range(ALL)) - set(found)
    assert len(lost) == BATCH_ROWS * len(hurt)
    spans = [(int(str(e.context["start"])), int(str(e.context["end"]))) for e in errors]
    assert {at for span in spans for at in range(*span)} == lost
    assert sum(end - start for start, end in spans) == len(lost)


@pytest.mark.parametrize("read", ["consume", "read", "find"])
def test_the_error_names_the_damaged_batch_and_its_messages(folder: Path, read: str):
    with kmq.open(folder, maintenance=False) as store:  # the run that is damaged is the second
        queues = store.keyed_queues("inbox")
        queues.put_batch(NAMES * MESSAGES, [b"later %d" % n for n in range(ALL)])
        store.seal()
    _damage(folder, b"later %d" % (11 * QUEUES + 7))
    calls: dict[str, Callable[[kmq.Store], object]] = {
        "consume": lambda store: list(iter(store.consumer(topics=["inbox"]).consume, [])),
        "read": lambda store: store.read("inbox").read_all(),
        "find": lambda store: store.find("inbox", key=b"queue 07"),
    }
    told = r"at byte \d+ \(messages of the queues b'(.*)', index (\d+) to b'(.*)', index (\d+)\)"
    with kmq.open(folder, read_only=True) as store:
        with pytest.raises(CorruptionError, match=told) as raised:
            calls[read](store)
        (found,) = re.findall(told, str(raised.value))
        assert raised.value.context["queues"] in str(raised.value)
        queues = store.keyed_queues("inbox")
        for name, index, before in ((*found[:2], -1), (*found[2:], 1)):
            with pytest.raises(CorruptionError, match="can't be read"):
                queues.get(name, int(index), 1)
            assert queues.get(name, int(index) + before, 1)


def test_of_long_names_the_error_names_the_beginning(tmp_path: Path):
    name = b"\xff" * limits.QUEUE_NAME_BYTES_MAX
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.keyed_queues("inbox").put_batch([name, b"a"], [b"message", b"other"])
        store.seal()
    _damage(tmp_path / "store", b"message")
    with kmq.open(tmp_path / "store", read_only=True) as store:
        (damage,) = store.verify(deep=True).damage
        with pytest.raises(CorruptionError) as raised:
            store.read("inbox").read_all()
    for text in (damage.reason, str(raised.value)):
        assert "\\xff'..., index 0)" in text
        assert len(text) < 2_000


@pytest.mark.parametrize("is_repaired", [False, True])
def test_who_goes_on_behind_each_error_does_not_read_the_run_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_repaired: bool
):
    _damage(folder, _message(7, 11))
    if is_repaired:
        with kmq.open(folder, maintenance=False) as store:
            store.repair(drop_damaged=True)
    decoded = list[object]()
    decode = ChunkReader._decode_now

    def noted(self: ChunkReader, chunk: Chunk, layout: Layout) -> object:
        decoded.append(chunk)
        return decode(self, chunk, layout)

    monkeypatch.setattr(ChunkReader, "_decode_now", noted)
    with kmq.open(folder, read_only=True) as store:
        found, errors = _consume(store.consumer(topics=["inbox"]))
    assert (len(found), len(errors)) == (ALL - BATCH_ROWS, BATCH_ROWS)
    whole = ALL // BATCH_ROWS - 1
    damaged = 0 if is_repaired else 9 * len(errors)  # looked at again, some times for each
    assert len(decoded) <= whole + damaged


def test_a_run_without_a_whole_batch_is_told_with_all_its_offsets(folder: Path):
    file, whole = _damage(folder)
    file.write_bytes(whole.replace(b" in ", b"?in "))
    with kmq.open(folder, read_only=True) as store:
        found, errors = _consume(store.consumer(topics=["inbox"]))
    assert not found
    assert [(e.context["start"], e.context["end"]) for e in errors] == [(0, ALL)]


def test_a_consumer_goes_on_when_the_file_was_put_back(folder: Path):
    file, whole = _damage(folder, _message(7, 11))
    with kmq.open(folder, read_only=True) as store, store.consumer(topics=["inbox"]) as consumer:
        found = 0
        with pytest.raises(CorruptionError):
            while records := consumer.consume(7, timeout=0):
                found += len(records)
        file.write_bytes(whole)
        while records := consumer.consume(7, timeout=0):
            found += len(records)
        assert found == ALL


def test_of_a_batch_that_proves_nothing_the_offsets_that_no_other_has_are_lost(folder: Path):
    file, contents = _damage(folder, _message(7, 11))
    with kmq.open(folder, read_only=True) as store:
        with pytest.raises(CorruptionError) as raised:
            store.keyed_queues("inbox").get("queue 07", 11, 1)
        told = re.search(r"at byte (\d+)", str(raised.value))
        assert told is not None
    at = int(told[1]) + 8  # also what tells where its columns are
    file.write_bytes(contents[:at] + bytes(64) + contents[at + 64 :])
    with kmq.open(folder, read_only=True) as store:
        found, errors = _consume(store.consumer(topics=["inbox"]))
    assert found == {at: _message(at % QUEUES, at // QUEUES) for at in found}
    assert len(found) == ALL - BATCH_ROWS
    assert len(errors) <= BATCH_ROWS


def _delete_every_other_queue(folder: Path) -> None:
    with kmq.open(folder, maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for queue in range(0, QUEUES, 2):
            queues.delete(f"queue {queue:02}")
        queues.flush()
        store.compact("inbox")
        store.checkpoint()
        store.collect(grace=0)


def test_messages_that_were_deleted_are_not_told_as_damaged(folder: Path):
    _delete_every_other_queue(folder)
    _damage(folder, _message(7, 11))
    with kmq.open(folder, read_only=True) as store:
        found, errors = _consume(store.consumer(topics=["inbox"]))
    assert sum(value is not None for value in found.values()) == ALL // 2 - BATCH_ROWS
    assert len(errors) == BATCH_ROWS


def test_a_repair_makes_no_gap_of_messages_that_were_deleted(folder: Path):
    _delete_every_other_queue(folder)
    _damage(folder, _message(7, 11))
    with kmq.open(folder, maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        gaps: list[tuple[int, int]] = []
        at = 0
        while at < ALL:
            try:
                store.read("inbox", start={0: at}, end={0: ALL}).read_all()
                break
            except kmq.DataLossError as error:
                gaps.append((int(str(error.context["start"])), int(str(error.context["end"]))))
                at = gaps[-1][1]
    assert sum(end - start for start, end in gaps) == BATCH_ROWS
