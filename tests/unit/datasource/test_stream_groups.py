"""Finds groups that run ahead of a stream, fall behind it, go back, or are read by two at once."""

from __future__ import annotations

import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kmq_spark.datasource.executor import announcement
from kmq_spark.datasource.executor.announcement import announced
from kmq_spark.datasource.groups import committed
from kmq_spark.datasource.groups.committed import Place, QueryMember
from kmq_spark.datasource.offsets import StreamOffset
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import DataLossError, FencedError, IllegalStateError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.groups import exclusive
from kmq_storage.log.binding.binding import Unit
from tests.spark.shop import Shop
from tests.unit.datasource.engine import ALL, Crash, Stream, batch_reader
from tests.unit.datasource.test_stream_limits import Clock


def test_a_group_follows_the_batches_that_are_finished_and_never_goes_back(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4", group="billing")
    query = stream.start(available_now=True)
    query.trigger()
    assert shop.committed("billing", "orders") == {0: 0, 1: 0, 2: 0}
    query.trigger(Crash.AFTER_SINK)
    assert shop.committed("billing", "orders") == {0: 4, 1: 0, 2: 0}
    stream.start(available_now=True).all_available()
    assert shop.committed("billing", "orders") == {0: 10, 1: 0, 2: 0}
    stream.stop()
    old = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="1", group="billing")
    old.checkpoint.ends, old.checkpoint.finished = stream.checkpoint.ends[:1], 1
    old.start().trigger()
    assert shop.committed("billing", "orders") == {0: 10, 1: 0, 2: 0}


def test_who_moves_a_group_and_pauses_before_the_commit_does_not_put_it_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send("orders", 0, 10)
    shop.send("orders", 1, 1)
    log = shop.store.log
    place = QueryMember(log, "billing", uuid.uuid4(), SYSTEM).place
    ids = {"orders": log.state.topic("orders").topic_id}
    listener, query = (
        StreamOffset(ids=ids, positions={"orders": at}) for at in ({0: 4, 1: 1}, {0: 7})
    )
    planned = committed.forward_entries

    def paused(*given: Any) -> tuple[GroupOffsetsEntry, ...]:
        monkeypatch.setattr(committed, "forward_entries", planned)
        entries = planned(*given)
        committed.advance_group(log, place, query)
        return entries

    monkeypatch.setattr(committed, "forward_entries", paused)
    committed.advance_group(log, place, listener)
    assert shop.committed("billing", "orders") == {0: 7, 1: 1}


def test_a_group_resumes_a_query_without_its_checkpoint(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    first = Stream(shop, startingOffsets="earliest", group="billing")
    first.start(available_now=True).all_available()
    first.stop()
    later = [*shop.send("orders", 0, 3), *shop.send("orders", 1, 3)]
    second = Stream(shop, startingOffsets="earliest", group="billing")
    second.start(available_now=True).all_available()
    assert sorted(second.sink.places) == later
    assert shop.committed("billing", "orders") == {0: 13, 1: 3, 2: 0}


def test_a_group_does_not_pass_over_what_was_trimmed_before_its_query_read_it(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4", group="billing")
    stream.start().trigger()
    shop.store.trim("orders", {0: 6})
    for each in (stream, Stream(shop, group="billing")):
        with pytest.raises(DataLossError, match=r"offsets 4 to 10 .* 2 records are lost"):
            each.start().trigger()
        each.stop()
    assert shop.committed("billing", "orders") == {0: 4, 1: 0, 2: 0}


def test_a_group_knows_a_topic_that_was_made_again(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    first = Stream(shop, startingOffsets="earliest", group="billing")
    first.start(available_now=True).all_available()
    first.stop()
    shop.send("orders", 1, 4)
    shop.delete("orders")
    shop.store.checkpoint()
    shop.create("orders", 1)
    again = shop.send("orders", 0, 5)
    wary = Stream(shop, group="billing")
    with pytest.raises(DataLossError, match=r"orders.*made again: 4 of .*orders-1 from 0"):
        wary.start().all_available()
    wary.stop()
    given = {"path": shop.url, "subscribe": "orders", "group": "billing"}
    batch = batch_reader(given | {"startingOffsets": "group"})
    with pytest.raises(DataLossError, match=r"orders.*made again: 4 of "):
        batch.partitions()
    second = Stream(shop, group="billing", failOnDataLoss="false")
    query = second.start()
    query.all_available()
    assert second.sink.places == again
    assert query.reader.reportLatestOffset()["#kmq"]["lost"] == 4
    second.stop()
    third = Stream(shop, group="billing")
    third.start().all_available()
    assert third.sink.places == []


def test_a_group_that_was_deleted_has_read_nothing_of_an_earlier_topic(shop: Shop) -> None:
    shop.commit("billing", "orders", {0: 0})
    shop.delete("orders")
    shop.create("orders", 1)
    shop.delete_group("billing")
    shop.send("orders", 0, 5)
    stream = Stream(shop, group="billing")
    stream.start().all_available()
    assert stream.sink.places == []


@pytest.mark.parametrize("crash", list(Crash))
def test_a_group_keeps_the_first_place_also_when_batch_and_checkpoint_are_lost(
    shop: Shop, crash: Crash
) -> None:
    shop.send("orders", 0, 10)
    first = Stream(shop, group="billing")
    first.start().trigger(crash)
    first.stop()
    between = shop.send("orders", 0, 4)
    again = Stream(shop, group="billing")
    again.start().all_available()
    assert again.sink.places == between


def test_a_group_that_knows_nothing_of_a_topic_begins_where_the_options_say(shop: Shop) -> None:
    shop.create("returns")
    shop.send("orders", 0, 2)
    first = Stream(shop, startingOffsets="earliest", group="g")
    first.start(available_now=True).all_available()
    first.stop()
    shop.grow("orders", 4)
    sent = [*shop.send("orders", 3, 2)]
    shop.send("returns", 0, 5)
    both = Stream(shop, subscribe="orders,returns", group="g")
    both.start().all_available()
    sent += shop.send("returns", 0, 1)
    both.start().all_available()
    assert sorted(both.sink.places) == sorted(sent)


def test_a_checkpoint_goes_before_the_group(shop: Shop) -> None:
    shop.send("orders", 0, 6)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="2", group="g")
    stream.start().trigger()
    stream.stop()
    other = Stream(shop, startingOffsets="earliest", group="g")
    other.start().all_available()
    other.stop()
    stream.start().all_available()
    assert stream.sink.places == shop.places("orders")


@pytest.mark.parametrize("crash", [None, Crash.AFTER_SINK])
def test_where_the_checkpoint_knows_nothing_of_a_topic_the_group_goes_on(
    shop: Shop, crash: Crash | None
) -> None:
    shop.create("returns")
    shop.send("orders", 0, 2)
    shop.send("returns", 0, 3)
    lost = Stream(shop, subscribe="orders,returns", startingOffsets="earliest", group="g")
    lost.start(available_now=True).all_available()
    lost.stop()
    sent = [*shop.send("orders", 0, 1)]
    stream = Stream(shop, subscribe="orders", startingOffsets="earliest", group="g")
    stream.start(available_now=True).all_available()
    sent += shop.send("returns", 0, 2)
    if crash is not None:
        stream.start(subscribe="orders,returns").trigger(crash)
        sent += shop.send("returns", 0, 1)
    stream.start(available_now=True, subscribe="orders,returns").all_available()
    assert sorted(stream.sink.places) == sorted(sent)
    assert shop.committed("g", "returns") == {0: 5 + (crash is not None)}


def _patient(shop: Shop, clock: Clock, **options: str) -> Stream:
    stream = Stream(shop, startingOffsets="earliest", group="billing", **options)
    stream.environment = clock.environment()
    return stream


def test_a_second_query_is_refused_and_told_who_reads_the_group(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    first = _patient(shop, Clock())
    first.start().all_available()
    clock = Clock()
    with pytest.raises(FencedError, match=r"billing is in use since .* UTC by a streaming query, "):
        _patient(shop, clock).start().trigger()
    assert clock.seconds >= 1_005, "a query that was just stopped gets a moment to die"
    first.stop()
    _patient(shop, clock).start().trigger()


@pytest.mark.parametrize("host", ["this", "another"])
def test_a_query_that_may_have_met_its_own_other_source_is_told_how_to_read_twice(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    if host == "another":
        monkeypatch.setattr(exclusive, "this_process", lambda: "another-7")
    first = _patient(shop, Clock()).start()
    first.reader.latestOffset(first.reader.initialOffset(), ALL)
    with pytest.raises(FencedError) as refused:
        _patient(shop, Clock()).start().trigger()
    assert "by a streaming query before its first batch, " in str(refused.value)
    advice = str(refused.value).partition("): ")[2]
    assert advice.startswith("it may be this query itself" if host == "this" else "stop it, or")
    assert ("load() twice, with a group each" in advice) == (host == "this")


def test_a_batch_job_is_not_taken_for_another_source_of_the_query_that_it_meets(
    shop: Shop,
) -> None:
    first = _patient(shop, Clock()).start()
    first.reader.latestOffset(first.reader.initialOffset(), ALL)
    clock = Clock().environment()
    with pytest.raises(FencedError, match=r"before its first batch, .*: stop it, or wait for its"):
        QueryMember(shop.store.log, "billing", clock.new_uuid(), clock, name="a job")


def test_a_query_that_has_read_nothing_and_one_that_is_idle_since_its_restart_have_a_name(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _patient(shop, Clock())
    monkeypatch.setattr(announcement, "_name", lambda: "streaming query 'bills' (id 7)")
    for records in (0, 0, 3, 0):
        shop.send("orders", 0, records)
        stream.start().all_available()
        with pytest.raises(FencedError, match=r"UTC by streaming query 'bills' \(id 7\), \S+ \("):
            _patient(shop, Clock()).start().trigger()
    assert stream.sizes == [0, 3]


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("bills\nid = 7\nrunId = 8\nbatch = 0", "streaming query 'bills' (id 7)"),
        ("\nid = 7\nrunId = 8\nbatch = 0", "streaming query (id 7)"),
        ("id = 7\nrunId = 8\nbatch = 0", "streaming query (id 7)"),
        (None, "streaming query (id 7)"),
    ],
)
def test_a_query_without_a_name_is_told_by_its_id(
    monkeypatch: pytest.MonkeyPatch, description: str | None, name: str
) -> None:
    told = {"sql.streaming.queryId": "7", "spark.job.description": description}
    context = SimpleNamespace(getLocalProperty=told.get)
    monkeypatch.setattr(announcement.TaskContext, "get", lambda: context)
    assert announcement._name() == name


def test_a_query_tells_its_partitions_with_the_first_topic_that_there_is(shop: Shop) -> None:
    stream = _patient(shop, Clock(), subscribePattern="^later$")
    del stream.options["subscribe"]
    query = stream.start()
    for topics, assignment in [([], {}), (["later"], {"later": [0, 1]})]:
        for topic in topics:
            shop.create(topic, 2)
            shop.send(topic)
        query.all_available()
        (member,) = shop.store.describe_group("billing").members
        assert member.client.startswith("a streaming query, ")
        assert member.assignment == assignment


def test_a_query_that_was_killed_does_not_block_its_own_restart(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    stream = _patient(shop, Clock())
    stream.start().trigger(Crash.AFTER_SINK)
    shop.send("orders", 0, 3)
    stream.start().all_available()
    assert stream.sink.places == shop.places("orders")
    assert stream.environment.monotonic() == 1_000.0, "nobody had to wait"


def test_two_runs_on_one_checkpoint_are_told_apart_from_two_queries(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    stream = _patient(shop, Clock())
    query = stream.start()
    query.all_available()
    copy = _patient(shop, Clock())
    copy.checkpoint = stream.checkpoint
    with pytest.raises(FencedError, match="an earlier run of this query, or one on a copy of its"):
        copy.start().trigger()
    assert not query.trigger()


def test_what_a_query_commits_after_it_lost_its_group_is_refused(shop: Shop) -> None:
    shop.send("orders", 0, 6)
    stream = _patient(shop, Clock(), maxOffsetsPerTrigger="2")
    query = stream.start()
    query.trigger()
    generation = shop.store.describe_group("billing").generation
    other = GroupEntry("billing", generation + 1, "other", "query 'b'", {})
    shop.store.log.commit([Unit((other,))])
    with pytest.raises(FencedError, match=r"taken over by query 'b' \(generation 2, this .* 1\)"):
        query.trigger()
    assert shop.committed("billing", "orders") == {0: 0, 1: 0, 2: 0}


@pytest.mark.parametrize("how", ["set", "copy"])
def test_who_hears_late_of_a_querys_last_batch_does_not_undo_what_was_set_since(
    shop: Shop, how: str
) -> None:
    shop.send("orders", 0, 6)
    shop.store.set_group_offsets("first", "earliest", topics=["orders"])
    stream = _patient(shop, Clock())
    stream.start(available_now=True).all_available()
    stream.stop()
    log, generation = shop.store.log, shop.store.describe_group("billing").generation
    if how == "set":
        shop.store.set_group_offsets("billing", {"orders": {0: 2}})
    else:
        shop.store.copy_group("first", "billing")
    ids = {"orders": log.refresh().topic("orders").topic_id}
    finished = StreamOffset(ids=ids, positions={"orders": {0: 6}})
    with pytest.raises(FencedError, match="had its offsets set, or was deleted"):
        committed.advance_group(log, Place("billing", uuid.uuid4(), generation), finished)
    assert shop.committed("billing", "orders")[0] == (2 if how == "set" else 0)
    _patient(shop, Clock()).start(available_now=True).all_available()
    assert shop.committed("billing", "orders")[0] == 6


def test_the_first_task_of_a_run_tells_the_group_who_reads_it_and_what(shop: Shop) -> None:
    shop.send("orders", 1, 3)
    query = _patient(shop, Clock()).start()
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, None)
    (member,) = shop.store.describe_group("billing").members
    assert member.assignment == {}
    for task in query.reader.partitions(start, end):
        announced(task, shop.url)
    (member,) = shop.store.describe_group("billing").members
    assert member.client.startswith("a streaming query, ")
    assert member.assignment == {"orders": [0, 1, 2]}
    assert json.loads(json.dumps(end))["#kmq"]["query"] == member.name
    lsn = shop.lsn()
    for task in query.reader.partitions(start, end):
        announced(task, shop.url)
    assert shop.lsn() == lsn, "once in a run is enough"


def test_an_announcement_that_comes_too_late_stops_nobody(shop: Shop) -> None:
    shop.send("orders", 1, 3)
    stream = _patient(shop, Clock())
    query = stream.start()
    start = query.reader.initialOffset()
    (task,) = query.reader.partitions(start, query.reader.latestOffset(start, None))
    stream.stop()
    other = _patient(shop, Clock())
    other.start().trigger()
    assert announced(task, shop.url) is not task
    (member,) = shop.store.describe_group("billing").members
    assert member.assignment == {"orders": [0, 1, 2]}


def test_a_consumer_and_a_query_do_not_share_a_group(shop: Shop) -> None:
    query = _patient(shop, Clock()).start()
    query.trigger()
    with pytest.raises(IllegalStateError, match="group billing has a live member already"):
        shop.store.consumer("billing", topics=["orders"])
    query.die()
    with shop.store.consumer("billing", topics=["orders"]), pytest.raises(FencedError):
        _patient(shop, Clock()).start().trigger()


def test_a_query_keeps_its_name_over_restarts_and_a_new_checkpoint_has_another(shop: Shop) -> None:
    stream = _patient(shop, Clock())
    names = []
    for same in (True, True, False):
        stream = stream if same else _patient(shop, Clock())
        shop.send("orders", 0, 1)
        stream.start().all_available()
        stream.stop()
        names.append(json.loads(stream.checkpoint.ends[-1])["#kmq"]["query"])
    assert names[0] == names[1] != names[2]
