"""A repair of a damaged run notes which messages of which queues it gave up.

Finds: queues that are told of losses though they lost nothing, and queues that are told of other
messages than they lost, or of none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.copying.topics import copy_topics
from kmq_storage.format.frame import MAGIC
from tests.damage.told import tell_losses
from tests.support.damage import flip

QUEUES, MESSAGES, BATCH_ROWS = 20, 30, 25
NAMES = [f"queue {n:02}" for n in range(QUEUES)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose keyed topic has two runs of small batches, behind each other."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for number in range(2 * MESSAGES):
            queues.put_batch(NAMES, [_message(name, number) for name in NAMES])
            if number % MESSAGES == MESSAGES - 1:
                assert store.seal().segments == 1
        store.checkpoint()
    return tmp_path / "store"


def _message(name: str, number: int) -> bytes:
    return b"<%d in %s>" % (number, name.encode())


def _damage(folder: Path, *messages: bytes) -> None:
    for message in messages:
        for file in folder.glob("segments/*/0/*.arrow"):
            contents = file.read_bytes()
            if message in contents:
                file.write_bytes(contents.replace(message, b"?" + message[1:]))


def _repaired(folder: Path) -> kmq.Store:
    store = kmq.open(folder, maintenance=False)
    assert store.repair(drop_damaged=True).ok
    return store


def _lost_of(queues: kmq.KeyedQueues) -> dict[str, list[tuple[int, int]]]:
    """What each queue is told when it is read whole; its next get must go on."""
    told = {}
    for name in NAMES:
        try:
            queues.get(name, 0, 999)
        except kmq.DataLossError as error:
            told[name] = _told(error, name)
            queues.get(name, 0, 999)
    return told


def _told(error: kmq.DataLossError, name: str) -> list[tuple[int, int]]:
    """The ranges of indexes in an error about one queue."""
    lost: dict[bytes, list[tuple[int, int]]] = error.context["lost"]  # type: ignore[assignment]
    spans = lost[error.context["queue"]]  # type: ignore[index]
    in_words = ", ".join(f"{a} to {b}" if a < b else f"{a}" for a, b in spans)
    assert f"messages {in_words} of queue {name.encode()!r} in inbox" in str(error)
    return spans


def _really_lost(queues: kmq.KeyedQueues) -> dict[str, list[int]]:
    stored = {name: set(queues.get(name, 0, 999)) for name in NAMES}
    lost = {
        name: [n for n in range(2 * MESSAGES) if _message(name, n) not in stored[name]]
        for name in NAMES
    }
    return {name: numbers for name, numbers in lost.items() if numbers}


@pytest.mark.parametrize("hurt", [[(7, 11)], [(7, 11), (7, 50), (8, 1)], [(0, 0), (19, 59)]])
def test_only_queues_that_lost_messages_are_told_and_of_these_messages(
    folder: Path, hurt: list[tuple[int, int]]
):
    _damage(folder, *(_message(NAMES[queue], number) for queue, number in hurt))
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        told = _lost_of(queues)
        lost = _really_lost(queues)
    assert {name: [*_each(spans)] for name, spans in told.items()} == lost
    assert sum(map(len, lost.values())) == BATCH_ROWS * len(hurt)


def _each(spans: list[tuple[int, int]]) -> list[int]:
    return [n for first, last in spans for n in range(first, last + 1)]


def test_what_was_lost_is_known_after_merges_checkpoints_and_in_copies(folder: Path):
    _damage(folder, _message(NAMES[7], 40))
    with _repaired(folder) as store:
        told = _lost_of(store.keyed_queues("inbox"))
        store.compact("inbox")
        store.checkpoint()
    with kmq.open(folder) as store:
        assert _lost_of(store.keyed_queues("inbox")) == told
        with kmq.open(folder.parent / "copy") as copy:
            copy_topics(store.log, copy.log)
    with kmq.open(folder.parent / "copy") as copy:
        assert _lost_of(copy.keyed_queues("inbox")) == told != {}


def test_a_copy_of_a_repaired_run_is_a_run_with_the_same_records_and_gaps(folder: Path):
    _damage(folder, _message(NAMES[7], 11), _message(NAMES[7], 50))
    with _repaired(folder) as store, kmq.open(folder.parent / "copy", maintenance=False) as copy:
        assert copy_topics(store.log, copy.log).segments == 2
        assert copy.verify(deep=True).ok
        assert _records(copy) == _records(store)
        store.keyed_queues("inbox").put_batch(NAMES, [b"more"] * QUEUES)
        assert copy_topics(store.log, copy.log).rows == QUEUES
        assert _records(copy) == _records(store)
        copy.compact("inbox")
        assert _records(copy) == _records(store)
        told = _lost_of(store.keyed_queues("inbox"))
        assert _lost_of(copy.keyed_queues("inbox")) == told != {}


def _records(store: kmq.Store) -> tuple[dict[int, object], list[tuple[int, int]]]:
    """All records by offset, and the gaps between them."""
    found: dict[int, object] = {}
    gaps: list[tuple[int, int]] = []
    with store.consumer(topics=["inbox"]) as consumer:
        while True:
            try:
                records = consumer.consume(99, timeout=0)
            except kmq.DataLossError as error:
                gaps.append((int(str(error.context["start"])), int(str(error.context["end"]))))
                consumer.seek("inbox", 0, gaps[-1][1])
                continue
            if not records:
                return found, gaps
            found |= {record.offset: (record.key, record.value) for record in records}


def test_get_many_is_told_of_all_queues_that_lost_messages_and_goes_on(folder: Path):
    _damage(folder, _message(NAMES[7], 11))
    with _repaired(folder) as store:
        told = _lost_of(store.keyed_queues("inbox"))
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        whole = [name for name in NAMES if name not in told]
        assert queues.get_many(whole, 0, 999).num_rows == len(whole) * 2 * MESSAGES
        with pytest.raises(kmq.DataLossError) as lost:
            queues.get_many(NAMES[::-1], 0, 999)
        assert lost.value.context["lost"] == {name.encode(): told[name] for name in told}
        assert queues.get_many(NAMES, 0, 999).num_rows == QUEUES * 2 * MESSAGES - BATCH_ROWS
        assert _lost_of(queues) == {}


def test_a_queue_that_get_many_names_twice_is_told_of_all_that_it_lost(folder: Path):
    _damage(folder, _message(NAMES[7], 11), _message(NAMES[7], 50))
    with _repaired(folder) as store:
        lost = _lost_of(store.keyed_queues("inbox"))[NAMES[7]]
    with kmq.open(folder) as store, pytest.raises(kmq.DataLossError) as error:
        store.keyed_queues("inbox").get_many([NAMES[7], NAMES[7]], [40, 0], 999)
    assert _told(error.value, NAMES[7]) == lost
    assert len(lost) == 2


def test_who_reads_on_from_the_middle_is_told_of_what_was_lost_before_when_it_goes_back(
    folder: Path,
):
    _damage(folder, _message(NAMES[7], 11), _message(NAMES[7], 50))
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        for first in (MESSAGES, 0):
            with pytest.raises(kmq.DataLossError):
                queues.get(NAMES[7], first, 999)
            queues.get(NAMES[7], first, 999)


def test_a_receiver_of_a_queue_that_lost_nothing_is_told_nothing(folder: Path):
    _damage(folder, _message(NAMES[7], 11))
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        assert len(queues.receive(NAMES[0], 999)) == 2 * MESSAGES
        with pytest.raises(kmq.DataLossError, match="of queue b'queue 07' in inbox were lost"):
            queues.receive(NAMES[7], 999)
        assert queues.receive(NAMES[7], 999)


@pytest.mark.parametrize("sealed", [False, True])
def test_another_life_of_a_queue_is_not_told_of_what_the_one_before_lost(
    folder: Path, *, sealed: bool
):
    _damage(folder, _message(NAMES[7], 11))
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        queues.delete(NAMES[7])
        queues.put(NAMES[7], b"new").result()
        if sealed:
            store.seal()
        assert queues.get(NAMES[7], 0, 999) == [b"new"]
        assert queues.get_many([NAMES[7]], 0, 999)["value"].to_pylist() == [b"new"]
        assert [each.value for each in queues.receive(NAMES[7], 9)] == [b"new"]


def _damage_bytes(file: Path, found: bytes) -> None:
    contents = file.read_bytes()
    assert found in contents
    file.write_bytes(contents.replace(found, b"\xff" + found[1:], 1))


def test_messages_whose_offsets_are_damaged_are_told_by_queue_and_index(folder: Path):
    (file,) = folder.glob(f"segments/*/0/{0:020}-*.arrow")
    for queue, number in (7, 11), (8, 1), (13, 20):
        _damage_bytes(file, (number * QUEUES + queue).to_bytes(8, "little"))
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        told, lost = _lost_of(queues), _really_lost(queues)
        assert {name: [*_each(spans)] for name, spans in told.items()} == lost
        assert sum(map(len, lost.values())) == 3 * BATCH_ROWS
    first = min(lost[NAMES[13]])
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        assert len(queues.get(NAMES[13], 0, first)) == first
        with pytest.raises(kmq.DataLossError):
            queues.get(NAMES[13], first, 1)


@pytest.mark.parametrize("damaged", ["message", "offset"])
def test_of_a_run_without_a_whole_batch_only_queues_that_lost_messages_are_told(
    tmp_path: Path, damaged: str
):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for number in range(MESSAGES):
            queues.put_batch(NAMES[:2], [_message(name, number) for name in NAMES[:2]])
            if number == MESSAGES // 2:
                store.seal()
        store.seal()
        queues.put_batch(NAMES[1:3], [b"later"] * 2)
    for file in tmp_path.glob(f"store/segments/*/0/{MESSAGES + 2:020}-*.arrow"):
        found = _message(NAMES[0], 20) if damaged == "message" else (40).to_bytes(8, "little")
        _damage_bytes(file, found)
    with _repaired(tmp_path / "store") as store:
        lost = [(MESSAGES // 2 + 1, MESSAGES - 1)]
        queues = store.keyed_queues("inbox")
        assert _lost_of(queues) == {NAMES[0]: lost, NAMES[1]: lost}
        assert queues.get(NAMES[2], 0, 9) == [b"later"]


def test_another_life_in_the_first_run_that_is_left_is_not_told_of_the_one_before(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.keyed_queues("inbox").put_batch(NAMES, [_message(name, 0) for name in NAMES])
        store.seal()
    _damage(tmp_path / "store", _message(NAMES[0], 0))
    with _repaired(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.delete(NAMES[0])
        queues.put_batch(NAMES[:2], [b"new"] * 2)
        store.seal()
        assert queues.get(NAMES[0], 0, 9) == [b"new"]
        assert queues.get_many([NAMES[0]], 0, 9)["value"].to_pylist() == [b"new"]
        assert [each.value for each in queues.receive(NAMES[0], 9)] == [b"new"]
        assert _lost_of(queues).keys() == set(NAMES[1:])


@pytest.mark.parametrize("lost", [NAMES[:0], NAMES[1:4], NAMES[1:]])
def test_a_queue_that_ended_in_damaged_records_stays_ended(
    tmp_path: Path, lost: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 3)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(NAMES, [_message(name, 0) for name in NAMES])
        store.seal()
        queues.delete(*NAMES[:3])
        queues.put_batch(NAMES[1:], [_message(name, 1) for name in NAMES[1:]])
        store.seal()
    (file,) = tmp_path.glob(f"store/segments/*/0/{QUEUES:020}-*.arrow")
    _damage_bytes(file, NAMES[0].encode())  # the ends are the first batch
    _damage(tmp_path / "store", *(_message(name, 1) for name in lost))
    with _repaired(tmp_path / "store") as store, kmq.open(tmp_path / "copy") as copy:
        indexes = {name: int(name not in NAMES[:3]) for name in lost}
        told = {name: [(index, index)] for name, index in indexes.items()}
        assert _lost_of(store.keyed_queues("inbox")) == told
        copy_topics(store.log, copy.log)
        store.compact("inbox")
        for each in store, copy:
            queues = each.keyed_queues("inbox")
            assert _lost_of(queues) == ({} if each is store else told)
            assert queues.names() == [name for name in NAMES[1:] if indexes.get(name) != 0]
            assert queues.put(NAMES[0], b"anew").result() == 0
            assert each.verify(deep=True).ok


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("headers", [None, {"why": b"closed"}])
def test_an_end_that_alone_is_in_a_damaged_run_is_written_again_as_it_was(
    tmp_path: Path, headers: dict[str, bytes] | None, compression: str | None
):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        store.alter_topic("inbox", compression=compression)
        queues.put_batch(NAMES[:1] * 3, [_message(NAMES[0], n) for n in range(3)])
        store.seal()
        with store.producer() as producer:
            producer.send("inbox", None, key=NAMES[0], headers=headers).result()
        store.seal()
        records, gaps = _records(store)
        assert list(records) == [0, 1, 2, 3]
    (file,) = tmp_path.glob(f"store/segments/*/0/{3:020}-*.arrow")
    _damage_bytes(file, NAMES[0].encode())
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair().ok == (headers is None)
        assert store.repair(drop_damaged=True).ok
        if headers is not None:  # nobody knows them: it can't be proved
            assert _records(store)[1] == [(3, 4)]
            return
        assert _records(store) == (records, gaps)
        queues = store.keyed_queues("inbox")
        assert _lost_of(queues) == {}
        assert queues.names() == []
        assert queues.put(NAMES[0], b"anew").result() == 0


@pytest.mark.parametrize("unknown", ["too many", "directory"])
def test_where_the_queues_are_unknown_each_is_told_that_it_may_have_lost_messages(
    folder: Path, unknown: str, monkeypatch: pytest.MonkeyPatch
):
    _damage(folder, _message(NAMES[7], 11))
    if unknown == "too many":
        monkeypatch.setattr(limits, "LOST_MESSAGES_BYTES_MAX", 10)
    else:
        (file,) = folder.glob(f"segments/*/0/{0:020}-*.arrow")
        _damage_bytes(file, b"".join(name.encode() for name in NAMES))  # the names in the directory
    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")
        tell_losses(queues, *NAMES)
        assert sum(map(len, _really_lost(queues).values())) == BATCH_ROWS


@pytest.mark.parametrize("others", [[], [b"message 3"]])
def test_records_of_no_queue_that_are_lost_are_told_to_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[bytes]
):
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        with store.keyed_queues("inbox"), store.producer() as producer:
            for number in range(MESSAGES):
                producer.send("inbox", b"no key %d" % number)
                producer.send("inbox", b"message %d" % number, key=NAMES[0])
        store.seal()
    _damage(tmp_path / "store", b"no key 3", *others)
    with _repaired(tmp_path / "store") as store:
        told = _lost_of(store.keyed_queues("inbox"))
        assert told == ({NAMES[0]: [(0, BATCH_ROWS - 1)]} if others else {})
        with pytest.raises(kmq.DataLossError):
            store.read("inbox").read_all()


@pytest.mark.parametrize("many", [False, True])
def test_losses_of_known_and_of_unknown_messages_are_told_in_one_error(folder: Path, many: bool):
    _damage(folder, _message(NAMES[7], 11))
    with kmq.open(folder, maintenance=False) as store:
        for value in (b"of any queue", b"last"):
            store.keyed_queues("inbox").put(NAMES[7], value).result()
    (log,) = (file for file in folder.glob("log/0*") if b"of any queue" in file.read_bytes())
    contents = log.read_bytes()
    flip(log, contents.rindex(MAGIC, 0, contents.index(b"of any queue")) + 20)

    with _repaired(folder) as store:
        queues = store.keyed_queues("inbox")

        def read() -> list[bytes]:
            if many:
                return queues.get_many(NAMES[7:9], 0, 999)["value"].to_pylist()
            return queues.get(NAMES[7], 0, 999)

        unknown = "messages of queue b'queue 07' in inbox may be lost: offsets 1200 to 1200 of "
        with pytest.raises(kmq.DataLossError, match=unknown) as told:
            read()
        assert _told(told.value, NAMES[7]) == [(0, 14)]
        assert b"last" in read()
