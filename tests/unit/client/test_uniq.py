"""`uniq`: what is stored once within a while, and what the second sender is told."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.state.uniqs import Uniqs
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.support.clock import Clock


def _values(store: kmq.Store, topic: str = "t") -> list[bytes]:
    return [value for batch in store.read(topic) for value in batch["value"].to_pylist()]


def test_a_second_record_is_not_stored_and_its_place_is_the_first_ones(store: kmq.Store):
    store.create_topic("t", partitions=3)
    with store.producer(linger=0) as producer, store.producer(linger=0) as other:
        first = producer.send("t", b"1", key=b"a", uniq="x").result()
        assert not first.duplicate
        for sender, key in ((producer, b"a"), (producer, b"elsewhere"), (other, b"b")):
            again = sender.send("t", b"2", key=key, uniq="x").result()
            assert again.duplicate
            assert again[:3] == first[:3]
        assert not producer.send("t", b"3", key=b"a", uniq="y").result().duplicate
        assert not producer.send("t", b"4", key=b"a").result().duplicate
    assert sorted(_values(store)) == [b"1", b"3", b"4"]


def test_a_second_record_is_found_in_whatever_partition_it_would_stand(store: kmq.Store):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        first = producer.send("t", b"1", uniq="x", partition=0).result()
        elsewhere = producer.send("t", b"2", uniq="x", partition=1).result()
        keyless = {producer.send_batch("t", [b"-"]).result()[0].partition for _ in range(2)}
        assert keyless == {0, 1}  # routed in turn
        wherever = [producer.send("t", b"3", uniq="x").result() for _ in range(2)]
    for again in (elsewhere, *wherever):
        assert again.duplicate
        assert again[:3] == first[:3]
    assert _values(store).count(b"-") == len(_values(store)) - 1


def test_what_is_left_beside_a_double_keeps_its_place_before_later_sends(store: kmq.Store):
    store.create_topic("t")
    with store.producer(linger=10) as producer:
        producer.send("t", b"0", uniq="x").result()
        producer.send("t", b"1")
        producer.send("t", b"again", uniq="x")
        producer.send_arrow("t", pa.table({"value": [b"2", b"3"]}))
        producer.send("t", b"4")
        producer.flush()
    assert _values(store) == [b"0", b"1", b"2", b"3", b"4"]


def test_of_records_that_are_committed_together_the_first_one_counts(store: kmq.Store):
    store.create_topic("t", partitions=2)
    told: list[Any] = []

    def tell(error: Any, place: Any) -> None:
        told.append(place)

    with store.producer(linger=10) as producer:
        sent = [producer.send("t", b"%d" % n, uniq=f"u{n % 3}", on_delivery=tell) for n in range(9)]
        big = producer.send_batch("t", [b"between"])
        sent += [producer.send("t", b"%d" % n, uniq=f"u{n % 4}") for n in range(9, 12)]
        producer.flush()
        places = [each.result() for each in sent]
        assert big.result()
    assert [place.duplicate for place in places] == [*[False] * 3, *[True] * 7, True, False]
    for n in range(3, 9):
        assert places[n][:3] == places[n % 3][:3]
    assert (places[9][:3], places[10][:3]) == (places[1][:3], places[2][:3])
    assert told == places[:9]
    assert sorted(_values(store)) == [b"0", b"1", b"11", b"2", b"between"]


def test_a_record_that_could_not_be_stored_is_no_first_one(store: kmq.Store):
    store.create_topic("t", max_record_bytes=10)
    with store.producer(linger=10) as producer:
        bad = producer.send("t", b"x" * 11, uniq="u")
        good = producer.send("t", b"small", uniq="u")
        assert not good.result().duplicate
        assert bad.exception() is not None
    assert _values(store) == [b"small"]


def test_what_is_stored_already_is_told_so_though_there_is_no_room_for_more(store: kmq.Store):
    store.create_topic("t", capacity=1)
    store.create_queue("q", capacity=1)
    with store.producer() as producer:
        for send in (partial(producer.send, "t"), partial(producer.send_to_queue, "q")):
            assert not send(b"1", uniq="a").result(10).duplicate
            assert send(b"1", uniq="a").result(10).duplicate
            with pytest.raises(kmq.QueueFullError, match="room for 0 of 1 more"):
                send(b"2", uniq="b").result(10)
        with producer.transaction() as tx:
            again = [tx.send("t", b"1", uniq="a"), tx.send_to_queue("q", b"1", uniq="a")]
        assert [each.result(10).duplicate for each in again] == [True, True]
        refused = pytest.raises(kmq.TransactionAbortedError, match="room for 0 of 1 more")
        with refused, producer.transaction() as tx:
            tx.send("t", b"1", uniq="a")
            tx.send("t", b"2", uniq="b")
    assert store.offsets("t") == {0: (0, 1)}


def test_queues_and_topics_know_their_own_only(store: kmq.Store):
    store.create_topic("same")
    for name in ("same", "other"):
        store.create_queue(name)
    with store.producer(linger=0) as producer:
        producer.send("same", b"1", uniq="u").result()
        for name in ("same", "other"):
            assert not producer.send_to_queue(name, b"1", uniq="u").result().duplicate
            assert producer.send_to_queue(name, b"2", uniq="u", delay=9).result().duplicate
    assert store.queue("same").stats().ready == 1
    assert store.queue("same").stats().delayed == 0


def test_the_window_begins_with_the_first_accepted_one_and_is_not_extended():
    known = Uniqs()

    def store_at(second: int, offset: int, digest: bytes) -> None:
        entry = UniqEntry(b"t", 0, (Uniq(0, offset, digest),))
        known.apply(entry, second * 1_000_000, 10.0)

    def find_at(second: int, digest: bytes) -> tuple[int, int] | None:
        return known.find(b"t", digest, (second - 10) * 1_000_000)

    store_at(100, 1, b"a")
    assert [find_at(second, b"a") for second in (100, 109, 110)] == [(0, 1), (0, 1), None]
    store_at(108, 2, b"b")  # steady traffic extends nothing
    assert find_at(110, b"a") is None
    store_at(111, 3, b"a")
    assert find_at(112, b"a") == (0, 3)
    assert len(known._by_topic[b"t"]) == 2


@pytest.mark.parametrize("seed", range(12))
def test_what_is_stored_and_told_is_that_of_a_model(tmp_path: Path, seed: int):
    rng, seconds = random.Random(seed), 1_700_000_000
    clock = Environment(now_ns=lambda: seconds * 10**9)
    firsts: dict[tuple[str, str], tuple[int, Any]] = {}
    stored: dict[str, list[bytes]] = {"a": [], "b": []}
    with _open(tmp_path, clock) as store:
        for topic in stored:
            store.create_topic(topic, partitions=2, uniq_window=10.5)
        producers = [store.producer(linger=10) for _ in range(2)]
        for step in range(40):
            seconds += rng.choice((0, 1, 4))
            sent = []
            producer = rng.choice(producers)
            for n in range(rng.choice((1, 1, 5))):
                topic, text = rng.choice("ab"), rng.choice("uvwx")
                value = b"%d %d" % (step, n)
                sent.append((topic, text, value, producer.send(topic, value, uniq=text)))
            producer.flush()
            for topic, text, value, future in sent:
                place = future.result()
                since, first = firsts.get((topic, text), (0, None))
                assert place.duplicate == (seconds < since + 10.5)
                if place.duplicate:
                    assert place[:3] == first[:3]
                else:
                    firsts[topic, text] = seconds, place
                    stored[topic].append(value)
            if rng.random() < 0.1:
                store.checkpoint()
    with _open(tmp_path, clock) as store:
        assert {topic: sorted(_values(store, topic)) for topic in stored} == {
            topic: sorted(values) for topic, values in stored.items()
        }


def _open(folder: Path, clock: Environment) -> kmq.Store:
    disk = LocalDisk(folder)
    identity = open_identity(disk, clock, create=True, log_file_bytes=2**16)
    return kmq.Store(open_commit_log(disk, identity, clock, durable=False), maintenance=False)


def test_a_window_ends(store: kmq.Store):
    store.create_topic("t", uniq_window=0.05)
    with store.producer(linger=0) as producer:
        stored = 0
        while stored < 2:  # whatever the machine's pace: the second is stored some time
            stored += not producer.send("t", b"1", uniq="u").result().duplicate
    assert len(_values(store)) == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_survives_a_restart(tmp_path: Path, checkpoint: bool):
    url = tmp_path / "store"
    with kmq.open(url, durability="os") as store, store.producer() as producer:
        store.create_topic("t")
        first = producer.send("t", b"1", uniq="u").result()
        if checkpoint:
            store.checkpoint()
    with kmq.open(url, durability="os") as store, store.producer() as producer:
        again = producer.send("t", b"2", uniq="u").result()
        assert (again.duplicate, again.offset) == (True, first.offset)
        assert not producer.send("t", b"3", uniq="v").result().duplicate


def test_a_deleted_topic_is_forgotten(store: kmq.Store):
    with store.producer(linger=0) as producer:
        for _ in range(2):
            store.create_topic("t")
            assert not producer.send("t", b"1", uniq="u").result().duplicate
            store.delete_topic("t")


def test_a_typed_topic_has_it_too(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    with store.producer(linger=0) as producer:
        assert not producer.send("t", {"n": 1}, uniq="u").result().duplicate
        assert producer.send("t", {"n": 2}, uniq="u").result().duplicate


@pytest.mark.parametrize("uniq", ["", b"", 5, "\ud800"], ids=repr)
def test_what_is_neither_text_nor_bytes_is_refused_at_once(store: kmq.Store, uniq: Any):
    store.create_topic("t")
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="uniq"):
        producer.send("t", b"1", uniq=uniq)


# --- in transactions --------------------------------------------------------------------------


def test_a_transaction_leaves_out_what_is_stored_and_commits_the_rest(store: kmq.Store):
    store.create_topic("t", partitions=3)
    store.create_queue("q")
    with store.producer() as producer:
        first = producer.send("t", b"first", key=b"k", uniq="a").result()
        with producer.transaction() as tx:
            again = tx.send("t", b"again", key=b"other", uniq="a")
            fresh = tx.send("t", b"fresh", key=b"k", uniq="b")
            twice = tx.send("t", b"twice", uniq="b")
            other = tx.send_to_queue("q", b"other", uniq="a")
        assert again.result()[:3] == first[:3]
        assert fresh.result()[:3] == ("t", first.partition, first.offset + 1)
        assert twice.result()[:3] == fresh.result()[:3]
        told = [each.result().duplicate for each in (again, fresh, twice, other)]
        assert told == [True, False, True, False]
    assert sorted(_values(store)) == [b"first", b"fresh"]


def test_a_transaction_of_nothing_new_is_no_commit(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"1", uniq="a").result()
        before = store.log.refresh().lsn
        with producer.transaction() as tx:
            again = tx.send("t", b"2", uniq="a")
        assert (again.result().duplicate, again.result().offset) == (True, 0)
        assert store.log.refresh().lsn == before


def test_an_aborted_transaction_has_no_first_ones(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.send("t", b"1", uniq="a")
            raise ZeroDivisionError
        assert not producer.send("t", b"2", uniq="a").result().duplicate
    assert _values(store) == [b"2"]


def test_places_are_right_behind_arrow_data_in_one_transaction(store: kmq.Store):
    store.create_topic("t")
    column = pa.table({"value": [b"x"] * 5})
    with store.producer() as producer:
        producer.send("t", b"0", uniq="old").result()
        with producer.transaction() as tx:
            sent = [tx.send("t", b"1", uniq="a"), tx.send("t", b"2", uniq="b")]
            tx.send_arrow("t", column)
            sent += [tx.send("t", b"v", uniq=uniq) for uniq in ("b", "c", "old", "d")]
            tx.send_arrow("t", column)
            sent.append(tx.send("t", b"only a double", uniq="d"))
        places = [(each.result().offset, each.result().duplicate) for each in sent]
        assert places == [
            *[(1, False), (2, False), (2, True), (8, False), (0, True), (9, False), (9, True)]
        ]
        for uniq, offset in {"old": 0, "a": 1, "b": 2, "c": 8, "d": 9}.items():
            again = producer.send("t", b"", uniq=uniq).result()
            assert (again.offset, again.duplicate) == (offset, True)
    assert len(_values(store)) == 15


def test_a_double_that_stands_alone_behind_arrow_data_is_told_its_place(store: kmq.Store):
    store.create_topic("t")
    with store.producer(linger=1000) as producer:
        sent = [producer.send("t", b"1", uniq="a")]
        producer.send_arrow("t", pa.table({"value": [b"x"]}))
        sent.append(producer.send("t", b"2", uniq="a"))
        producer.flush()
        assert [(s.result().offset, s.result().duplicate) for s in sent] == [(0, False), (0, True)]


def test_first_ones_that_others_store_meanwhile_are_found_by_all_works(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """The second work expects its first one in this commit, and then another commit has it."""
    store.create_topic("t")
    kind = type(store.log)
    append = kind.append
    attempts: list[Any] = []

    def meanwhile(log: CommitLog, *args: Any, **options: Any) -> Any:
        attempts.append(args)
        if len(attempts) == 2:
            other.send("t", b"other", uniq="a").result()
        return append(log, *args, **options)

    with store.producer() as producer, store.producer(linger=0) as other:
        with producer.transaction() as tx:
            sent = [tx.send("t", b"1", uniq="a")]
            tx.send_arrow("t", pa.table({"value": [b"x"]}))
            sent += [tx.send("t", b"2", uniq="a"), tx.send("t", b"3", uniq="b")]
            monkeypatch.setattr(kind, "append", meanwhile)
        places = [(each.result().offset, each.result().duplicate) for each in sent]
    assert places == [(0, True), (0, True), (2, False)]
    assert _values(store) == [b"other", b"x", b"3"]


def test_doubles_that_went_into_files_abort_with_the_name_of_the_limit(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", 10_000)
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"1", uniq="a").result()
        with (
            pytest.raises(kmq.TransactionAbortedError, match="TRANSACTION_MEMORY_BYTES"),
            producer.transaction() as tx,
        ):
            tx.send("t", b"2", uniq="a")
            for _ in range(50):
                tx.send("t", b"." * 1000)
        assert _values(store) == [b"1"]
        with producer.transaction() as tx:
            for _ in range(15):
                tx.send("t", b"." * 1000)
            last = tx.send("t", b"in memory still", uniq="a")
        assert (last.result().duplicate, last.result().offset) == (True, 0)
    assert len(_values(store)) == 16


@pytest.mark.parametrize("far", [1, 5_000])
def test_what_a_repeated_record_is_told_has_the_timestamp_that_is_stored(
    store: kmq.Store, clock: Clock, far: int
):
    store.create_topic("t", partitions=2)
    store.create_queue("q")
    day = datetime(1999, 12, 31, tzinfo=UTC)
    with store.producer(linger=10) as producer:
        firsts = [producer.send("t", b"1", uniq="a", timestamp=day)]
        firsts += [producer.send("t", b"2", uniq="b", partition=1)]
        producer.send_batch("t", [b"-"] * far, partition=0)
        producer.flush()
        firsts.append(producer.send("t", b"3", uniq="c", partition=0))
        firsts.append(producer.send_to_queue("q", b"4", uniq="a"))
        producer.flush()
        clock.pass_seconds(10)
        again = [producer.send("t", b"0", uniq=uniq, timestamp=day) for uniq in "abc"]
        again.append(producer.send_to_queue("q", b"0", uniq="a"))
        new = [producer.send("t", b"5", uniq="d"), producer.send("t", b"6", uniq="d")]
        clock.pass_seconds(10)
        new.append(producer.send("t", b"7", uniq="d", timestamp=day))
        producer.flush()
        assert [each.result()[:4] for each in again] == [each.result()[:4] for each in firsts]
        assert {each.result()[:4] for each in new} == {new[0].result()[:4]}
    stored = store.read("t").read_all()
    times = dict(zip(stored["value"].to_pylist(), stored["timestamp"].to_pylist(), strict=True))
    assert [each.result().timestamp for each in firsts[:3]] == [times[b"%d" % n] for n in (1, 2, 3)]


def test_who_repeats_what_is_not_there_any_more_is_told_its_own_timestamp(store: kmq.Store):
    store.create_topic("t")
    day = datetime(1999, 12, 31, tzinfo=UTC)
    with store.producer(linger=10) as producer:
        producer.send("t", b"1", uniq="a").result()
        second = producer.send("t", b"2", uniq="b").result()
        store.trim("t", {0: 1})
        again = [producer.send("t", b"3", uniq=uniq, timestamp=day) for uniq in "ab"]
    told = [(each.result().duplicate, each.result().timestamp) for each in again]
    assert told == [(True, day), (True, second.timestamp)]
