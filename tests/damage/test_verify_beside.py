"""Verify while the log that it looks at is collected. Finds errors that only name an exception,
and damage that is none."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage.integrity.log_files import LogFilesCheck
from kmq_storage.log.journal import Cursor, Journal, StoredFrame
from kmq_storage.log.local_log import LocalLog
from tests.support.engine import Sent, open_engine, send_rows


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("at", [5, 20, 41])
def test_a_log_that_is_collected_meanwhile_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch, at: int, deep: bool
):
    store = open_engine()
    store.create_topic("t")
    for number in range(40):
        send_rows(store.log, "t", [Sent(b"k", b"%d" % number * 100)] * 5)
    next_frame, looks = Journal.next_frame, 0

    def collected_meanwhile(
        journal: Journal, cursor: Cursor, *, whole: bool = False
    ) -> StoredFrame | None:
        nonlocal looks
        looks += 1
        if looks == at:
            _collect(other)
        return next_frame(journal, cursor, whole=whole)

    other = kmq.Store(store.log, maintenance=False)
    monkeypatch.setattr(Journal, "next_frame", collected_meanwhile)
    log, looks = store.log, 0
    assert isinstance(log, LocalLog)
    check = LogFilesCheck(log._log.new_journal(), log.refresh(), deep=deep)
    assert [str(each) for each in check.findings()] == []
    assert looks >= at


def _collect(store: kmq.Store) -> None:
    before = len(store.log.files.list("log"))
    store.seal()
    store.checkpoint()
    store.checkpoint()
    store.collect(grace=0)
    assert len(store.log.files.list("log")) < before
