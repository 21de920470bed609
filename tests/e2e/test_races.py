"""The races run whole in small, and find what they are there to find.

Finds: a race that no longer runs, and one that lets gaps, inversions or other contents pass.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kmq_spark as kmq
from benchmarks.races import message_phases, messages, queue_phases, queues
from benchmarks.races.message_phases import Task
from benchmarks.races.queue_messages import messages as made
from benchmarks.races.queue_messages import name_of
from benchmarks.races.queue_phases import Race
from benchmarks.races.race_messages import batch
from kmq_spark import openmessaging as oms
from kmq_spark.client.keyed.queues import KeyedQueues

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("by", message_phases.PHASES)
def test_the_messaging_race_gets_every_message_in_order_after_a_kill(tmp_path: Path, by: str):
    found = messages.run(3_000, str(tmp_path), by=by, users="threads")
    assert found.messages == 3_000
    assert f"kmq, {by}, threads | 3,000" in messages.table([found])


def test_the_messaging_race_refuses_fewer_messages_than_there_are_names(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit, match="2"):
        messages.main(["--messages", "999"])
    assert "--messages is 999" in capsys.readouterr().err


_PUT: dict[str, Callable[[oms.BytesMessage], object]] = {
    "another header": lambda message: message.put_headers("More", "1"),
    "another property": lambda message: message.put_properties("more", 1),
    "a float that was whole": lambda message: message.put_properties("PRO_OFFSET", 0.0),
    "a whole number that was none": lambda message: message.put_properties("weight", 0),
}


def _begun(users: ExitStack, kind: type[Any], settings: oms.KeyValue) -> Any:
    """A producer or consumer that ends with the others."""
    user = kind(settings)
    users.callback(user.shutdown)
    return user


@pytest.mark.parametrize("put", _PUT.values(), ids=_PUT)
def test_what_a_message_has_too_much_is_found_by_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[oms.BytesMessage], object]
):
    path, kinds = str(tmp_path / "store"), (oms.Producer, oms.PullConsumer)
    send = oms.Producer.send

    def sent(self: oms.Producer, message: oms.BytesMessage) -> object:
        put(message)
        return send(self, message)

    message_phases.prepare(path)
    with ExitStack() as users:  # of a race they are killed
        for kind in kinds:
            monkeypatch.setattr(oms, kind.__name__, partial(_begun, users, kind))
        message_phases.send_calls(Task(path, 0, 1))
        monkeypatch.setattr(kinds[0], "send", sent)
        message_phases.send_calls(Task(path, 1, 1))
        with pytest.raises(AssertionError, match=r"the number of|the type of"):
            message_phases.pull_calls(Task(path, 0, 1))


_POLLED: dict[str, Callable[[oms.BytesMessage], oms.BytesMessage]] = {
    "another label": lambda told: _polled(told, b"X" + (told.get_body() or b"")[1:], {}),
    "spaces for digits": lambda told: _polled(told, _spaced(told.get_body() or b""), {}),
    "a topic that is no queue": lambda told: _polled(told, told.get_body(), _OTHER_KIND),
}
_OTHER_KIND = {"Topic": "Queue", "Queue": "Topic"}


def _polled(told: oms.BytesMessage, body: bytes | None, renamed: dict[str, str]) -> Any:
    """A message as it was polled, with another body and headers of other names."""
    headers = oms.KeyValue()
    for name, value in told.headers().values.items():
        headers.put(renamed.get(name, name), value)
    return SimpleNamespace(
        headers=lambda: headers, properties=told.properties, get_body=lambda: body
    )


def _spaced(body: bytes) -> bytes:
    return body[:12] + body[12:21].replace(b"0", b" ") + body[21:]


@pytest.mark.parametrize("other", _POLLED.values(), ids=_POLLED)
def test_what_is_polled_otherwise_than_it_was_sent_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other: Callable[[oms.BytesMessage], oms.BytesMessage],
):
    path, kinds = str(tmp_path / "store"), (oms.Producer, oms.PullConsumer)
    poll = oms.PullConsumer.poll

    def polled(self: oms.PullConsumer) -> oms.BytesMessage | None:
        told = poll(self)
        return None if told is None else other(told)

    message_phases.prepare(path)
    with ExitStack() as users:
        for kind in kinds:
            monkeypatch.setattr(oms, kind.__name__, partial(_begun, users, kind))
        message_phases.send_calls(Task(path, 1, 1))
        monkeypatch.setattr(kinds[1], "poll", polled)
        with pytest.raises((AssertionError, KeyError), match=r"a body|QUEUE|TOPIC"):
            message_phases.pull_calls(Task(path, 0, 1))


@pytest.mark.parametrize("column", ["queue", "index", "value"])
def test_a_column_of_the_queue_race_that_is_another_one_is_found(tmp_path: Path, column: str):
    race = _put_race(tmp_path, rounds=3)
    asked, firsts = np.arange(3), np.zeros(3, np.int64)
    with kmq.open(race.url) as store:
        names = [name_of(queue) for queue in asked.tolist()]
        found = store.keyed_queues(queue_phases.TOPIC).get_many(names, 0, 2)
    counts = np.full(3, 2)
    queue_phases._expect(found, asked, firsts, counts)
    at = found.schema.get_field_index(column)
    wrong = [found[column].take([0] * 6), found[column].cast(_OTHER_TYPES[column])]
    for other in (found.set_column(at, column, each) for each in wrong):
        with pytest.raises(AssertionError, match=f"the {column} of a message"):
            queue_phases._expect(other, asked, firsts, counts)


_OTHER_TYPES = {"queue": pa.large_binary(), "index": pa.float64(), "value": pa.large_binary()}


@pytest.mark.parametrize("name", ["TOPIC_7", "QUEUE_3"])
def test_a_message_with_a_key_is_found(tmp_path: Path, name: str):
    path = str(tmp_path / "store")
    message_phases.prepare(path)
    with kmq.open(path) as store, store.producer() as producer:
        send = producer.send if name.startswith("TOPIC") else producer.send_to_queue
        send(name, b"").result()
        message_phases.expect_no_keys(path)
        send(name, b"", key=b"k").result()
    with pytest.raises(AssertionError, match="a key"):
        message_phases.expect_no_keys(path)


def test_a_key_is_found_before_a_message_of_a_queue_is_acknowledged(tmp_path: Path):
    path = str(tmp_path / "store")
    message_phases.prepare(path)
    with kmq.open(path) as store, store.producer() as producer:
        producer.send_to_queue("QUEUE_0", b"", key=b"k").result()
        with pytest.raises(AssertionError, match="a key"):
            message_phases.pull_batches(Task(path, 0, 0))
        assert store.queue("QUEUE_0").stats().acked == 0


def test_a_message_that_a_queue_still_has_was_not_pulled_by_batches(tmp_path: Path):
    task = Task(str(tmp_path / "store"), 0, 2)
    message_phases.prepare(task.path)
    for number in range(message_phases.USERS):
        message_phases.send_batches(Task(task.path, number, task.each))
    message_phases.pull_batches(task)
    with kmq.open(task.path) as store:
        stats = store.queue("QUEUE_0").stats()
    assert (stats.ready, stats.locked, stats.acked) == (0, 0, 20)
    with pytest.raises(AssertionError, match="the number of messages"):
        message_phases.pull_batches(Task(task.path, 0, 3))


@pytest.mark.parametrize("race", [messages, queues])
def test_a_folder_that_is_not_there_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, race: Any
):
    with pytest.raises(SystemExit, match="2"):
        race.main(["--folder", str(tmp_path / "none")])
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.endswith(f"--folder: {tmp_path / 'none'} is no folder that can be written to")


def test_the_queue_race_gets_every_message_of_every_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sizes = ["--queues", "300", "--messages", "6000", "--checks", "200"]
    queues.main([*sizes, "--processes", "1", "--threads", "2", "--folder", str(tmp_path)])
    told = capsys.readouterr().out
    assert "| kmq, batches, sorting in send | 6,000 |" in told
    assert "| kmq, one by one, sorting in send | 6,000 |" in told
    assert "limit 1 GB" in told
    assert "2,000,000,000 messages need" not in told  # so few say nothing of that
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_the_workers_of_the_queue_race_make_all_checks_together(workers: int):
    races = [Race("", 1_000, 10_000, queues.CHECKS, workers, number) for number in range(workers)]
    assert sum(race.checked for race in races) == 1_000_010


def test_the_tables_of_the_races_have_the_totals_that_were_published():
    assert "| 2,691,946 |" in queues._line(*queues.PUBLISHED[0])
    told = messages.table([])
    assert "| 380,130 |" in told
    assert "| 363,811 |" in told


@pytest.mark.parametrize(
    ("counters", "wrong"),
    [([0, 1, 3], "counter"), ([0, 2, 1], "counter"), ([0, 1, 1], "counter"), ([1, 2], "counter")],
    ids=["gap", "inversion", "double", "loss at the start"],
)
def test_what_is_not_in_order_is_found(counters: list[int], wrong: str):
    rows = pa.concat_batches([batch(4, 7, counter, counter + 1) for counter in counters])
    with pytest.raises(AssertionError, match=wrong):
        message_phases.expect(rows, 4, np.zeros(message_phases.USERS, np.int64))


@pytest.mark.parametrize("column", ["value", "headers", "properties"])
def test_what_has_another_content_is_found(column: str):
    right, other = batch(4, 7, 0, 3), batch(5, 7, 1, 4)
    if column == "value":
        other = batch(5, 7, 0, 3)
    at = right.schema.get_field_index(column)
    rows = right.set_column(at, column, other.column(column))
    with pytest.raises(AssertionError, match="content"):
        message_phases.expect(rows, 4, np.zeros(message_phases.USERS, np.int64))
    message_phases.expect(right, 4, np.zeros(message_phases.USERS, np.int64))


def _moved(column: pa.Array, rows: list[int]) -> pa.Array:
    """The same entries with row bounds of one's own."""
    bounds = pa.array(rows, pa.int32())
    if pa.types.is_map(column.type):
        return pa.MapArray.from_arrays(bounds, column.keys, column.items, column.type)
    return pa.ListArray.from_arrays(bounds, column.values, type=column.type)


@pytest.mark.parametrize(
    ("column", "bounds"), [("headers", [0, 2, 2, 3]), ("properties", [0, 1, 4, 6])]
)
def test_what_stands_on_a_neighbours_row_is_found(column: str, bounds: list[int]):
    right = batch(4, 7, 0, 3)
    at = right.schema.get_field_index(column)
    rows = right.set_column(at, column, _moved(right.column(column), bounds))
    with pytest.raises(AssertionError, match="content"):
        message_phases.expect(rows, 4, np.zeros(message_phases.USERS, np.int64))


@pytest.mark.parametrize("column", ["headers", "properties"])
def test_rows_are_those_that_were_sent_wherever_they_stand_in_a_batch(column: str):
    rows = batch(4, 7, 0, 5).slice(2, 2)
    expected = np.full(message_phases.USERS, 2)
    assert rows.column(column).offset == 2
    message_phases.expect(rows, 4, expected)
    assert expected[7] == 4


def _put_race(folder: Path, *, rounds: int) -> Race:
    """A store in which each of thirty queues has so many messages, and its race."""
    race = Race(f"{folder}/store", 30, 30 * rounds, 1, 1, 0)
    queue_phases.prepare(race, None)
    queue_phases.put(race)
    return race


def test_every_message_is_put_by_a_call_of_its_own_round_robin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    race, given = Race(f"{tmp_path}/store", 3, 7, 1, 1, 0), []
    put = KeyedQueues.put

    def watched(self: KeyedQueues, queue: bytes, message: bytes) -> Future[int]:
        given.append(queue)
        return put(self, queue, message)

    monkeypatch.setattr(KeyedQueues, "put", watched)
    monkeypatch.setattr(queue_phases, "_BATCH", 4)  # its ends fall into rounds
    queue_phases.prepare(race, None)
    queue_phases.put_one_by_one(race)
    assert given == [b"Queue-0", b"Queue-1", b"Queue-2"] * 2
    for phase in (queue_phases.expect_counts, queue_phases.check, queue_phases.read):
        phase(race)


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        (lambda found: found[:-1], "number of messages"),
        (lambda found: [*found, found[0]], "a content"),
        (lambda found: found[::-1], "a content"),
        (lambda found: [*map(bytearray, found)], "type of a message"),
    ],
    ids=["too few", "too many", "another order", "another type"],
)
def test_what_a_check_one_by_one_should_not_give_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Callable[[Any], Any], wrong: str
):
    race, get = replace(_put_race(tmp_path, rounds=20), checks=9), KeyedQueues.get
    queue_phases.check_one_by_one(race)
    monkeypatch.setattr(KeyedQueues, "get", lambda *asked: other(get(*asked)))
    with pytest.raises(AssertionError, match=wrong):
        queue_phases.check_one_by_one(race)


def test_queues_are_read_in_turn_until_a_get_gives_fewer_than_ten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    race, asked = _put_race(tmp_path, rounds=20), []
    get = KeyedQueues.get

    def watched(self: KeyedQueues, queue: bytes, offset: int, num: int) -> list[bytes]:
        asked.append((queue, offset, num))
        return get(self, queue, offset, num)

    monkeypatch.setattr(KeyedQueues, "get", watched)
    queue_phases.read_one_by_one(race)
    names = [b"Queue-0", b"Queue-10", b"Queue-20"]
    assert asked == [(name, first, 10) for first in (0, 10, 20) for name in names]


def test_a_message_too_many_in_one_queue_is_found(tmp_path: Path):
    race = _put_race(tmp_path, rounds=20)
    queue_phases.read_one_by_one(race)
    with kmq.open(race.url) as store:
        message = made(np.array([10]), np.array([20]))[0].as_py()
        store.keyed_queues(queue_phases.TOPIC).put(name_of(10), message).result()
    with pytest.raises(AssertionError, match="number of messages"):
        queue_phases.read_one_by_one(race)


def test_a_message_too_few_in_every_queue_is_found(tmp_path: Path):
    put = _put_race(tmp_path, rounds=19)
    race = Race(put.url, 30, 600, 1, 1, 0)
    with pytest.raises(AssertionError, match="number of messages"):
        queue_phases.read_one_by_one(race)


@pytest.mark.parametrize("rounds", [19, 21], ids=["too few", "too many"])
def test_a_queue_of_another_length_is_found_whether_or_not_it_is_read(tmp_path: Path, rounds: int):
    put = _put_race(tmp_path, rounds=20)
    queue_phases.expect_counts(put)
    with pytest.raises(AssertionError, match="number of messages"):
        queue_phases.expect_counts(Race(put.url, 30, 30 * (40 - rounds), 1, 1, 0))
    with kmq.open(put.url) as store:
        store.keyed_queues(queue_phases.TOPIC).put(name_of(11), b"").result()
    with pytest.raises(AssertionError, match="number of messages"):
        queue_phases.expect_counts(put)
