"""Groups of queries whose process is not dead yet, though Spark said that they have ended.

Finds: calls that are refused, now and then, because they come some milliseconds too early, and a
late commit that changes the group of a successor.
"""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.group_entries import GroupPlanEntry
from kmq_storage.groups import administration, membership
from kmq_storage.groups.exclusive import ExclusiveMembership
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog


@pytest.mark.parametrize("call", ["set", "delete", "copy", "join"])
def test_a_group_is_free_for_who_comes_while_the_query_that_ended_is_dying(
    store: kmq.Store, call: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(membership, "_TO_DIE", 60.0)  # however late its death comes
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"x").result()
    store.set_group_offsets("other", {"t": {0: 1}})
    dying = ExclusiveMembership(store.log, "g", "query", told="a query")
    death = threading.Timer(0.1, dying.leave)
    death.start()
    {
        "set": lambda: store.set_group_offsets("g", {"t": {0: 1}}),
        "delete": lambda: store.delete_group("g"),
        "copy": lambda: store.copy_group("other", "g"),
        "join": lambda: store.consumer("g", topics=["t"]).close(),
    }[call]()
    death.join()


def test_a_query_that_joins_while_offsets_are_set_is_seen(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    ExclusiveMembership(store.log, "g", "ended", told="a query").leave()
    check, joined = administration.check_idle, []

    def joins_after_the_check(log: CommitLog, group: str) -> None:
        check(log, group)
        joined.append(ExclusiveMembership(log, group, "new", told="a query"))

    monkeypatch.setattr(administration, "check_idle", joins_after_the_check)
    with pytest.raises(kmq.IllegalStateError, match="live member"):
        administration.set_group_offsets(store.log, "g", {"t": {0: 0}})
    joined[0].tell_assignment({"t": [0]})  # it is still the group's member
    joined[0].leave()


def test_a_query_begins_though_somebody_is_slow_to_look_whether_its_place_is_free(tmp_path: Path):
    with kmq.open(tmp_path) as store:
        ExclusiveMembership(store.log, "g", "query", told="a query").leave()
        with (tmp_path / paths.member_lock("g")).open() as looked_at:
            fcntl.flock(looked_at, fcntl.LOCK_SH)  # as who looks does
            goes_on = threading.Timer(0.3, fcntl.flock, (looked_at, fcntl.LOCK_UN))
            goes_on.start()
            ExclusiveMembership(store.log, "g", "query", told="a query").leave()
            goes_on.join()


@pytest.mark.parametrize("reopened", [False, True])
def test_who_commits_late_changes_nothing_of_a_group_that_was_deleted_and_made_again(
    tmp_path: Path, reopened: bool
):
    with kmq.open(tmp_path) as store:
        store.create_topic("t")
        store.producer().send_batch("t", [b"x", b"y"]).result()
        ended = _ended_query(store, "g")
        store.delete_group("g")
        late = GroupOffsetsEntry("g", ended, store.log.state.topic("t").id, ((0, 2),))
        if reopened:
            store.checkpoint()
    with kmq.open(tmp_path) as store:
        assert (store.log.state.checkpoint_lsn > 0) == reopened
        for makes_again in (False, True):
            if makes_again:
                assert _ended_query(store, "g") > ended
            with pytest.raises(kmq.FencedError):
                store.log.commit([Unit((late,))])
        assert store.describe_group("g").committed == {}


def test_a_plan_of_a_deleted_group_is_none_of_a_group_that_is_made_again(store: kmq.Store):
    store.create_topic("t")
    with store.consumer("g", topics="t"):
        known = store.log.state.group("g")
        late = GroupPlanEntry("g", known.generation + 1, known.plan)
    store.delete_group("g")
    with store.consumer("g", topics="t") as new:
        with pytest.raises(kmq.ConflictError, match="plan again"):
            store.log.commit([Unit((late,))])
        assert new.assignment() == {"t": [0]}


def _ended_query(store: kmq.Store, group: str) -> int:
    query = ExclusiveMembership(store.log, group, "query", told="a query")
    query.leave()
    return query.generation
