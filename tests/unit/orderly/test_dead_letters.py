"""Records whose attempts are used up: dead letters, passed over, or in the way for ever.

Finds: dead letters that are lost, doubled, cut or apart from their offset.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.orderly import reading
from kmq_spark.client.orderly.reading import Reading
from kmq_storage.format.entries import GroupOffsetsEntry, RecordsEntry
from tests.simulation.mutants import Mutant
from tests.simulation.queue_mutants import (
    buries_again_when_the_outcome_is_unknown,
    commits_below_a_letter,
)
from tests.support.waiting import until
from tests.unit.client.stored import records as stored
from tests.unit.orderly.listening import (
    COMMIT,
    ROLLBACK,
    SUCCESS,
    SUSPEND,
    Listener,
    committed,
    fill,
    orderly,
    scripted,
)


def test_a_record_whose_attempts_are_used_up_becomes_a_dead_letter_with_its_whole_story(
    store: kmq.Store,
):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        headers, properties = [("trace", b"7"), ("none", None)], {"tries": 1, "rate": 0.5}
        for value in (b"poison", b"fine"):
            producer.send(
                "t", value, b"k", headers=headers, properties=properties, partition=1
            ).result(10)
    listener = Listener(scripted(*[ValueError("bad \ud800")] * 3))
    with orderly(store, listener, max_reconsume_times=2):
        listener.hear(4)
    assert listener.offsets(1) == [0, 0, 0, 1]
    assert committed(store)[1] == 2
    (letter,) = stored(store, "%DLQ%g")
    (original, _) = stored(store, "t")
    assert (letter.key, letter.value, letter.headers) == (b"k", b"poison", original.headers)
    assert letter.timestamp == original.timestamp
    assert dict(letter.properties) == {
        "tries": 1,
        "rate": 0.5,
        "dead_letter_group": "g",
        "dead_letter_topic": "t",
        "dead_letter_partition": 1,
        "dead_letter_offset": 0,
        "dead_letter_count": 3,
        "dead_letter_reason": "ValueError: bad \\ud800",
    }


def test_a_dead_letter_and_the_offset_behind_its_record_are_one_commit(line: kmq.Store):
    with orderly(line, Listener(scripted(SUSPEND)), max_reconsume_times=0):
        until(lambda: committed(line) == {0: 4})
    letters = line.describe_topic("%DLQ%g").topic_id.bytes
    (entries,) = (
        commit.entries
        for commit in line.commits()
        if any(isinstance(e, RecordsEntry) and e.topic_id == letters for e in commit.entries)
    )
    assert [e.offsets for e in entries if isinstance(e, GroupOffsetsEntry)] == [((0, 1),)]


def test_no_record_of_a_batch_is_buried_while_one_of_them_has_attempts_left(line: kmq.Store):
    """RocketMQ sends those at the limit away, and tries all of them again: dead and alive."""
    more = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        if context.reconsume_times == (1,):
            assert more.wait(30)  # and only now does the other one come
        return SUSPEND if records[0].offset == 3 else SUCCESS

    listener = Listener(answer)
    with orderly(line, listener, consume_batch_max_size=3, max_reconsume_times=2) as consumer:
        until(lambda: [(0, 3)] in listener.calls[2:])
        fill(line, {0: 1})
        until(lambda: len(consumer.process_queues()["t"][0].waiting) == 1)
        more.set()
        until(lambda: committed(line) == {0: 5})
    assert [len(call) for call in listener.calls] == [3, 1, 1, 2, 2, 2]
    letters = [each.properties for each in stored(line, "%DLQ%g")]
    assert [each["dead_letter_offset"] for each in letters] == [3, 4]
    assert [each["dead_letter_count"] for each in letters] == [5, 3]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_dead_letter_can_be_traced_from_its_record_to_the_letter_and_back(
    line: kmq.Store, auto_commit: bool, monkeypatch: pytest.MonkeyPatch
):
    listener = Listener(scripted(SUCCESS, SUSPEND))
    with orderly(line, listener, auto_commit=auto_commit, max_reconsume_times=0):
        listener.hear(4)
    why = "the listener suspended it"
    to = {"to_topic": "%DLQ%g", "to_partition": 0, "to_offset": 0}
    origin = {"from_group": "g", "from_topic": "t", "from_partition": 0, "from_offset": 1}
    for _ in range(2):
        (gone,) = (s.facts for s in line.trace("t", 0, 1) if s.event == "dead-lettered")
        assert gone == {"group": "g", **to, "reason": why}
        (sent,) = line.trace("%DLQ%g", 0, 0)
        assert sent.facts == {**origin, "from_count": 1, "from_reason": why}
        assert "dead-lettered" not in [s.event for n in (0, 2, 3) for s in line.trace("t", 0, n)]
        monkeypatch.setattr(line.log, "commits", lambda _start: ())  # all collected


def test_a_copy_of_a_dead_letter_in_another_topic_is_traced_as_no_letter(
    line: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    listener = Listener(scripted(SUSPEND))
    with orderly(line, listener, max_reconsume_times=0):
        listener.hear(4)
    line.create_topic("%DLQ%other")
    for target in ("t", "%DLQ%other"):
        line.replay("%DLQ%g", target, group="again-" + target[-1])
    (back,) = line.trace("t", 0, 4)[:1]
    assert "from_group" not in back.facts
    with monkeypatch.context() as patched:
        patched.setattr(line.log, "commits", lambda _start: ())
        assert dict(line.trace("%DLQ%other", 0, 0)[0].facts) == {}
    assert [s.event for s in line.trace("t", 0, 0)].count("dead-lettered") == 1


def test_a_dead_letter_that_can_not_be_stored_suspends_again_until_it_can(
    line: kmq.Store, caplog: pytest.LogCaptureFixture
):
    line.create_topic("%DLQ%g", capacity=1)
    fill(line, {0: 1}, topic="%DLQ%g")
    listener = Listener(lambda records, context: SUSPEND if records[0].offset == 0 else SUCCESS)
    with orderly(line, listener, max_reconsume_times=1) as consumer:
        listener.hear(9)
        assert 2 <= caplog.text.count("can't make dead letters") <= listener.answered // 2
        assert set(listener.offsets()) == {0}  # the next ones wait
        line.trim("%DLQ%g", {0: 1})
        until(lambda: consumer.process_queues()["t"][0].succeeded == 3)
    (letter,) = stored(line, "%DLQ%g")
    assert letter.properties["dead_letter_offset"] == 0
    assert committed(line) == {0: 4}


def test_a_record_that_is_trimmed_before_its_letter_is_stored_holds_up_nothing(line: kmq.Store):
    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        if records[0].offset == 0 and context.reconsume_times == (0,):
            line.trim("t", {0: 3})
        return SUSPEND if records[0].offset == 0 else SUCCESS

    with orderly(line, Listener(answer), max_reconsume_times=1):
        until(lambda: committed(line) == {0: 4})
    (letter,) = stored(line, "%DLQ%g")
    assert letter.properties["dead_letter_offset"] == 0


def test_a_dead_letter_whose_commit_was_not_answered_is_stored_once(
    line: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    listener = Listener(scripted(SUSPEND, SUSPEND))
    commit, unanswered = line.log.commit, ["once"]

    def commit_and_fail(units: Any, **options: Any) -> Any:
        done = commit(units, **options)
        if unanswered and any(isinstance(entry, RecordsEntry) for entry in done.entries):
            unanswered.clear()
            raise kmq.UnavailableError("nobody answered")
        return done

    monkeypatch.setattr(line.log, "commit", commit_and_fail)
    with orderly(line, listener, max_reconsume_times=0):
        listener.hear(5)
    assert listener.offsets() == [0, 0, 1, 2, 3]
    assert not unanswered
    (letter,) = stored(line, "%DLQ%g")
    assert letter.properties["dead_letter_offset"] == 0
    assert committed(line) == {0: 4}


@pytest.mark.parametrize("then", [SUSPEND, SUCCESS])
def test_while_nobody_knows_whether_a_letter_is_stored_no_lower_offset_is_committed(
    line: kmq.Store, monkeypatch: pytest.MonkeyPatch, then: kmq.OrderlyStatus
):
    commit, look, looks = line.log.commit, Reading._commit, [0]

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        if records[0].offset != 2:
            return SUCCESS
        if looks[0]:
            return until(lambda: looks[0] > 2) and then
        return SUSPEND

    def commit_unanswered(units: Any, **options: Any) -> Any:
        done = commit(units, **options)
        if not looks[0] and any(isinstance(entry, RecordsEntry) for entry in done.entries):
            looks[0] = 1
            monkeypatch.setattr(reading, "_COMMIT_SECONDS", 0.0)
            raise kmq.UnavailableError("nobody answered")
        return done

    def count_looks(reader: Reading) -> None:
        look(reader)
        looks[0] += bool(looks[0])

    monkeypatch.setattr(line.log, "commit", commit_unanswered)
    monkeypatch.setattr(Reading, "_commit", count_looks)
    with orderly(line, answer, max_reconsume_times=0):
        until(lambda: committed(line) == {0: 4})
    entries = [entry for each in line.commits() for entry in each.entries]
    behind = [e.offsets[0][1] for e in entries if isinstance(e, GroupOffsetsEntry)]
    assert behind == sorted(behind)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (
            buries_again_when_the_outcome_is_unknown,
            test_a_dead_letter_whose_commit_was_not_answered_is_stored_once,
        ),
        (
            commits_below_a_letter,
            partial(
                test_while_nobody_knows_whether_a_letter_is_stored_no_lower_offset_is_committed,
                then=SUCCESS,
            ),
        ),
    ],
)
def test_a_mistake_that_is_planted_there_is_found(
    line: kmq.Store, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, test: Callable[..., None]
):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test(line, monkeypatch)


def test_without_auto_commit_dead_letters_leave_the_offset_to_the_listener(line: kmq.Store):
    listener = Listener(scripted(SUSPEND, SUCCESS, ROLLBACK, SUCCESS, COMMIT))
    with orderly(line, listener, auto_commit=False, max_reconsume_times=0):
        listener.hear(4)
        (letter,) = stored(line, "%DLQ%g")
        assert letter.properties["dead_letter_offset"] == 0
        listener.hear(6)
    assert listener.offsets() == [0, 1, 2, 1, 2, 3]  # what is buried is not rolled back
    assert committed(line) == {0: 3}


def test_without_auto_commit_dead_letters_alone_finish_nothing(line: kmq.Store):
    listener = Listener(scripted(SUSPEND))
    with orderly(line, listener, auto_commit=False, max_reconsume_times=0):
        listener.hear(4)
    assert len(stored(line, "%DLQ%g")) == 1
    assert committed(line) == {0: 0}  # where it began


def test_a_poisonous_record_is_passed_over_by_choice(line: kmq.Store):
    listener = Listener(lambda records, context: SUSPEND if records[0].offset == 1 else SUCCESS)
    with orderly(line, listener, max_reconsume_times=1, when_exhausted="skip"):
        listener.hear(5)
    assert listener.offsets() == [0, 1, 1, 2, 3]
    assert committed(line) == {0: 4}
    assert [topic.name for topic in line.topics()] == ["t"]


def test_a_poisonous_record_blocks_by_choice_and_that_is_told(
    line: kmq.Store, caplog: pytest.LogCaptureFixture
):
    listener = Listener(lambda records, context: SUSPEND)
    with orderly(line, listener, max_reconsume_times=1, when_exhausted="block"):
        listener.hear(18)
    assert set(listener.offsets()) == {0}
    assert committed(line) == {}
    assert "t-0, offset 0" in caplog.text


def test_dead_letters_of_a_typed_topic_are_arrow_streams_of_their_row(store: kmq.Store):
    import pyarrow as pa

    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])
    store.create_topic("t", schema=schema)
    rows = pa.table({"id": [7], "price": pa.array(["1.50"]).cast(pa.decimal128(9, 2))})
    with store.producer() as producer:
        producer.send_arrow("t", rows)
    with orderly(store, Listener(scripted(SUSPEND)), max_reconsume_times=0):
        until(lambda: committed(store) == {0: 1})
    (letter,) = stored(store, "%DLQ%g")
    assert pa.ipc.open_stream(letter.value).read_all() == rows.cast(schema)


def test_no_dead_letter_goes_into_a_topic_with_columns_of_its_own(
    line: kmq.Store, caplog: pytest.LogCaptureFixture
):
    """Nobody could read that topic any more."""
    columns = pa.schema([("a", pa.int64())])
    line.create_topic("%DLQ%g", schema=columns)
    listener = Listener(lambda records, context: SUSPEND if records[0].offset == 0 else SUCCESS)
    with orderly(line, listener, max_reconsume_times=1):
        listener.hear(3)
        assert "topic %DLQ%g has a schema" in caplog.text
        assert line.read("%DLQ%g").read_all().num_rows == 0
        line.delete_topic("%DLQ%g")
        until(lambda: committed(line) == {0: 4})
    assert len(stored(line, "%DLQ%g")) == 1


def test_a_record_of_the_largest_size_becomes_a_dead_letter(store: kmq.Store):
    store.create_topic("t", max_record_bytes=3_000_000)
    with store.producer() as producer:
        producer.send("t", b"x" * 3_000_000).result(30)
    with orderly(store, Listener(scripted(SUSPEND)), max_reconsume_times=0):
        until(lambda: committed(store) == {0: 1})
    assert [len(each.value) for each in stored(store, "%DLQ%g")] == [3_000_000]
