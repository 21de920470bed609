"""What was looked at before a queue left a topic, or lost records, says nothing of later ones.

Finds: records that a former filter let in, records from before the new beginning, records that
are handed out twice at once, and those that nobody gets.
"""

from __future__ import annotations

import errno
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.errors import ConflictError, UnavailableError
from kmq_storage.format.queue_entries import RECALL, AnswerEntry, LookEntry, Run
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.queues import looking
from kmq_storage.queues.lost_records import finish_free
from tests.simulation.choosy_mutants import takes_looks_at_what_a_failed_sync_took_back
from tests.support.clock import Clock
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.storage import open_log


@pytest.mark.parametrize(("start", "expected"), [("earliest", [b"2"]), ("latest", [])])
def test_a_look_is_refused_when_the_topic_is_unbound_meanwhile(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, start: str, expected: list[bytes]
):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", ["t"], filter="n = 1")
    with store.producer() as producer:
        for n in (1, 2):
            producer.send("t", b"%d" % n, properties={"n": n}).result()
    original = looking._entering

    def entering(*args):
        monkeypatch.setattr(looking, "_entering", original)
        store.unbind_queue("q", ["t"])
        store.bind_queue("q", ["t"], start=start, filter="n = 2")
        return found

    found = original(
        store.log,
        store.queue("q")._reader,
        store.log.state.queue("q"),
        (store.log.state.topic("t").id, 0),
        (0, 2),
    )
    monkeypatch.setattr(looking, "_entering", entering)
    assert [each.value for each in store.queue("q").receive(9)] == expected


def test_what_is_lost_of_a_topic_that_is_unbound_meanwhile_is_finished_for_nobody(
    store: kmq.Store,
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send("t", b"v").result()
    queue = store.log.refresh().queue("q")
    lost = Run(store.log.state.topic("t").id, 0, 0, 1, 0)
    store.unbind_queue("q", ["t"])
    with pytest.raises(ConflictError):
        store.log.commit([Unit((AnswerEntry(queue.id, RECALL, 0, 0, (lost,)),))])
    store.bind_queue("q", ["t"])
    with pytest.raises(ConflictError):
        store.log.commit([Unit((AnswerEntry(queue.id, RECALL, 0, 0, (lost,)),))])
    assert len(store.queue("q").receive(9)) == 1


def _unbound(store: kmq.Store, *, held: int = 0, **settings: str | float) -> Run:
    """The last of two records of a topic that a queue reads no more, as if nobody had had it."""
    store.create_topic("t")
    store.create_queue("q", topics=["t"], **settings)
    with store.producer() as producer:
        producer.send_batch("t", [b"0", b"1"]).result()
    assert not held or len(store.queue("q").receive(held)) == held
    store.unbind_queue("q", ["t"])
    state = store.log.refresh()
    topic_id = state.topic("t").id
    return Run(topic_id, 0, 1, 1, state.queue("q").unnumbered(topic_id))


def test_a_look_is_refused_while_the_queue_does_not_read_the_topic(store: kmq.Store):
    topic_id = _unbound(store).topic_id
    queue = store.log.state.queue("q")
    for times in (0, 1):
        look = LookEntry(queue.id, topic_id, 0, 0, 2, ((0, 2),), (), times)
        with pytest.raises(ConflictError, match="unbound"):
            store.log.commit([Unit((look,))])


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_look_at_records_that_a_failed_sync_took_back_says_nothing_of_those_that_come_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
):
    disk = FailingDisk(tmp_path)
    store = kmq.open(tmp_path, durability="os", maintenance=False)
    with closing(store), closing(open_log(disk, durable=False)) as log, store.producer() as sender:
        store.create_topic("t")
        store.create_queue("q")
        store.bind_queue("q", ["t"], filter="n = 1")
        log.sync(log.written_state().lsn)
        disk.after_failed_sync = partial(drop_pages, disk, log._end.cursor.position)

        def send_to_its_place():
            sender.send("t", b"refused", properties={"n": 2}).result()
            sender.send("t", b"let in", properties={"n": 1}).result()

        def entering(*args):
            monkeypatch.setattr(looking, "_entering", original)
            found = original(*args)
            disk.failing["sync"] = errno.EIO
            with pytest.raises(UnavailableError, match="lost commit"):
                log.sync(log.written_state().lsn)
            if meanwhile:
                send_to_its_place()
            return found

        original = looking._entering
        sender.send("t", b"lost", properties={"n": 1}).result()
        monkeypatch.setattr(looking, "_entering", entering)
        came = store.queue("q").receive(9)
        if not meanwhile:
            send_to_its_place()
        came += store.queue("q").receive(9)
        assert [each.value for each in came] == [b"let in"]


def test_that_such_a_look_counts_is_found_when_it_is_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    takes_looks_at_what_a_failed_sync_took_back(monkeypatch)
    with pytest.raises(AssertionError, match="refused"):
        test_a_look_at_records_that_a_failed_sync_took_back_says_nothing_of_those_that_come_there(
            tmp_path, monkeypatch, meanwhile=True
        )


def test_a_gap_that_is_met_of_a_topic_that_is_unbound_by_then_says_nothing_of_the_next_binding(
    store: kmq.Store,
):
    topic_id = _unbound(store, order="key").topic_id
    gap = Gap(0, 1, "damaged")
    finish_free(store.log, store.log.state.queue("q"), (topic_id, 0), gap)
    store.bind_queue("q", ["t"], start="latest")
    assert store.queue("q").receive(9) == [], "it begins behind what was there"


def test_a_record_that_is_held_of_a_topic_that_is_unbound_is_not_finished_as_if_nobody_had_it(
    store: kmq.Store, clock: Clock
):
    """Else it stood there twice, was handed out twice at once, and counted twice."""
    run = _unbound(store, held=2, lock_timeout=30)
    queue_id = store.log.state.queue("q").id
    with pytest.raises(ConflictError, match="unbound"):
        store.log.commit([Unit((AnswerEntry(queue_id, RECALL, 0, 0, (run,)),))])
    store.bind_queue("q", ["t"])
    queue = store.queue("q")
    for times in (2, 3):
        clock.pass_seconds(31)  # the locks are over
        held = queue.receive(9)
        came = [(each.value, each.delivery_count) for each in held]
        assert came == [(b"0", times), (b"1", times)]
    queue.ack(held)
    assert queue.stats().acked == 2
