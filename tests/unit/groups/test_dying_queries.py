"""Groups of queries whose process is not dead yet, though Spark said that they have ended.

Finds: calls that are refused, now and then, because they come some milliseconds too early.
"""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.groups import administration, membership
from kmq_storage.groups.exclusive import ExclusiveMembership
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
