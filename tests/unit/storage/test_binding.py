"""The rules by which a commit is accepted, per kind of entry: nothing is written when one fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kmq_storage.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    IllegalStateError,
    InvalidRequestError,
    KmqError,
    NotFoundError,
    OffsetOutOfRangeError,
    QueueFullError,
)
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
)
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.trim import trim_topic
from kmq_storage.objects.memory import memory_disk
from tests.support.storage import TOPIC_ID, make_topic, open_log, send, unit_of, values_of

OTHER_ID = b"o" * 16


@pytest.fixture
def log() -> Iterator[CommitLog]:
    log = open_log(memory_disk(uuid.uuid4().hex))
    make_topic(log)
    yield log
    log.close()


def _refused(log: CommitLog, kind: type[KmqError], *entries: Entry) -> KmqError:
    before = log.refresh().lsn
    with pytest.raises(kind) as caught:
        log.commit([Unit(entries)])
    assert log.refresh().lsn == log.written_state().lsn == before
    return caught.value


def _duplicate(log: CommitLog, *entries: Entry) -> int:
    before = log.refresh().lsn
    with pytest.raises(DuplicateCommitError) as caught:
        log.commit([Unit(entries)])
    assert log.refresh().lsn == before
    return caught.value.lsn


def test_offsets_are_dense_per_partition_over_units_and_commits(log: CommitLog):
    units = [
        unit_of(log.files, [b"a", b"b"]),
        unit_of(log.files, [b"x"], partition=1),
        unit_of(log.files, [b"c"]),
    ]
    bases = [e.base_offset for e in log.commit(units).entries if isinstance(e, RecordsEntry)]
    assert bases == [0, 0, 2]
    assert send(log, b"d").entries[0].base_offset == 3
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


def test_a_refused_unit_is_named_and_the_others_are_not_written(log: CommitLog):
    units = [unit_of(log.files, [b"a"]), unit_of(log.files, [b"b"], partition=9)]
    with pytest.raises(RefusedError) as caught:
        log.append(units)
    assert caught.value.unit == 1
    assert isinstance(caught.value.cause, NotFoundError)
    assert values_of(log) == []


def test_records_of_an_unknown_topic_or_partition_are_refused(log: CommitLog):
    for unit in (
        unit_of(log.files, [b"x"], topic_id=OTHER_ID),
        unit_of(log.files, [b"x"], partition=2),
    ):
        _refused(log, NotFoundError, *unit.entries)


def test_a_full_topic_refuses_what_does_not_fit_and_takes_what_does(log: CommitLog):
    log.commit([Unit((TopicEntry(TOPIC_ID, "t", 2, {"capacity": 3}),))])
    send(log, b"a", b"b")
    error = _refused(log, QueueFullError, *unit_of(log.files, [b"c", b"d"]).entries)
    assert (error.context["room"], error.context["capacity"]) == (1, 3)
    both = [unit_of(log.files, [b"c"]), unit_of(log.files, [b"d"], partition=1)]
    with pytest.raises(QueueFullError):
        log.commit(both)
    send(log, b"c", partition=1)
    assert log.refresh().topic("t").held == 3


def test_a_producers_sequence_is_stored_once(log: CommitLog):
    first = log.commit([Unit((ProducerEntry("p", 1, 0),))])
    assert _duplicate(log, ProducerEntry("p", 1, 0)) == first.lsn
    log.commit([Unit((ProducerEntry("p", 1, 1),))])
    _refused(log, IllegalStateError, ProducerEntry("p", 1, 0))
    log.commit([Unit((ProducerEntry("p", 2, 0),))])
    error = _refused(log, FencedError, ProducerEntry("p", 1, 2))
    assert error.context["newer"] == 2
    log.commit([Unit((ProducerEntry("q", 1, 0),))])


def test_a_batch_id_is_stored_once_and_only_grows(log: CommitLog):
    first = log.commit([Unit((BatchIdEntry("query", 4),))])
    assert _duplicate(log, BatchIdEntry("query", 4)) == first.lsn
    assert _duplicate(log, BatchIdEntry("query", 3)) == first.lsn
    log.commit([Unit((BatchIdEntry("query", 5), BatchIdEntry("other", 1)))])
    assert log.refresh().batch_version("query") == 5


def test_group_offsets_stay_inside_the_log_this_commit_included(log: CommitLog):
    send(log, b"a", b"b")
    _refused(log, OffsetOutOfRangeError, GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 3),)))
    _refused(log, NotFoundError, GroupOffsetsEntry("g", -1, TOPIC_ID, ((5, 0),)))
    _refused(log, NotFoundError, GroupOffsetsEntry("g", -1, OTHER_ID, ((0, 0),)))
    unit = unit_of(log.files, [b"c"], also=(GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 3),)),))
    log.commit([unit])
    assert log.refresh().group_offsets("g") == {TOPIC_ID: {0: 3}}


def test_who_reads_a_group_alone_may_be_below_the_logs_start_and_nobody_else(log: CommitLog):
    send(log, b"a", b"b")
    trim_topic(log, "t", lambda _: {0: 2})
    _refused(log, OffsetOutOfRangeError, GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 1),)))
    log.commit([Unit((GroupEntry("g", 1, "query", "host", {}),))])
    _refused(log, OffsetOutOfRangeError, GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 1),)))
    _refused(log, OffsetOutOfRangeError, GroupOffsetsEntry("g", 1, TOPIC_ID, ((0, 3),)))
    log.commit([Unit((GroupOffsetsEntry("g", 1, TOPIC_ID, ((0, 1),)),))])
    assert log.refresh().group_offsets("g") == {TOPIC_ID: {0: 1}}


def test_offsets_that_go_forward_only_are_refused_behind_the_groups_as_a_whole(log: CommitLog):
    send(log, b"a", b"b", b"c")
    send(log, b"d", partition=1)
    log.commit([Unit((GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 2),)),))])
    back = GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 1), (1, 1)))
    with pytest.raises(ConflictError, match="group g is at 2 of t-0 already, which is beyond 1"):
        log.commit([Unit((back,), forward=True)])
    assert log.refresh().group_offsets("g") == {TOPIC_ID: {0: 2}}
    on = GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 2), (1, 1)))
    log.commit([Unit((on,), forward=True)])
    log.commit([Unit((back,))])  # who resets a group may
    assert log.refresh().group_offsets("g") == {TOPIC_ID: {0: 1, 1: 1}}


def test_a_member_of_an_older_generation_is_fenced(log: CommitLog):
    log.commit([Unit((GroupEntry("g", 1, "a", "host", {}),))])
    log.commit([Unit((GroupOffsetsEntry("g", 1, TOPIC_ID, ((0, 0),)),))])
    log.commit([Unit((GroupEntry("g", 2, "b", "host", {}),))])
    _refused(log, FencedError, GroupOffsetsEntry("g", 1, TOPIC_ID, ((0, 0),)))
    _refused(log, FencedError, GroupEntry("g", 2, "a", "host", {}))
    _refused(log, FencedError, GroupEntry("g", 4, "b", "host", {}))
    log.commit([Unit((GroupEntry("g", 2, "b", "host", {"t": [0]}),))])
    assert log.refresh().groups["g"].assignment == {"t": [0]}
    log.commit([Unit((GroupOffsetsEntry("g", -1, TOPIC_ID, ((1, 0),)),))])  # from outside


def test_a_group_is_deleted_once(log: CommitLog):
    _refused(log, NotFoundError, GroupEntry("g", 0, "", "", {}))
    log.commit([Unit((GroupEntry("g", 1, "a", "host", {}),))])
    log.commit([Unit((GroupEntry("g", 0, "", "", {}),))])
    assert "g" not in log.refresh().groups


def test_a_topic_name_is_taken_until_it_is_deleted(log: CommitLog):
    log.commit([Unit((GroupOffsetsEntry("g", -1, TOPIC_ID, ((0, 0),)),))])
    _refused(log, AlreadyExistsError, TopicEntry(OTHER_ID, "t", 1, {}))
    log.commit([Unit((TopicEntry(TOPIC_ID, "t", 0, {}),))])
    assert log.refresh().group_offsets("g") == {}
    _refused(log, NotFoundError, TopicEntry(TOPIC_ID, "t", 0, {}))
    _refused(log, NotFoundError, *unit_of(log.files, [b"x"]).entries)
    log.commit([Unit((TopicEntry(OTHER_ID, "t", 1, {}),))])
    assert log.refresh().topic("t").id == OTHER_ID


def test_a_unit_of_nothing_but_a_producer_is_a_commit(log: CommitLog):
    before = log.refresh().lsn
    assert log.commit([Unit((ProducerEntry("p", 1, -1),))]).lsn == before + 1


def test_partitions_only_grow(log: CommitLog):
    _refused(log, InvalidRequestError, TopicEntry(TOPIC_ID, "t", 1, {}))
    log.commit([Unit((TopicEntry(TOPIC_ID, "t", 5, {}),))])
    send(log, b"x", partition=4)
    assert log.refresh().topic("t").partitions == 5


@pytest.mark.parametrize("entry", [ProducerEntry("p", 1, 0), BatchIdEntry("query", 3)])
def test_a_commit_has_one_sequence_of_a_producer_and_one_batch_of_an_application(
    log: CommitLog, entry: Entry
):
    _refused(log, IllegalStateError, entry, entry)
