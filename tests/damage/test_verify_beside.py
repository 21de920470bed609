"""Verify while the log that it looks at is collected, or a segment is written. Finds errors that
only name an exception, and damage that is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.identity import Identity
from kmq_storage.integrity.checks import unneeded
from kmq_storage.integrity.files.log_files import LogFilesCheck
from kmq_storage.integrity.remains.commits import LeftCommit, commits_left
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.files.journal import Journal, StoredFrame
from kmq_storage.objects.files import Bytes, Files
from kmq_storage.objects.local import LocalDisk
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


def test_commits_that_are_collected_while_it_looks_for_segments_in_them_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
):
    store = open_engine()
    store.create_topic("t")
    for number in range(40):
        send_rows(store.log, "t", [Sent(b"k", b"%d" % number * 100)] * 5)
        if number in (10, 20):
            store.seal()
    other = kmq.Store(store.log, maintenance=False)
    other.compact("t")

    def collected_meanwhile(files: Files, identity: Identity) -> Iterator[LeftCommit]:
        commits = commits_left(files, identity)
        yield next(commits)
        _collect(other)
        yield from commits

    monkeypatch.setattr(unneeded, "commits_left", collected_meanwhile)
    report = store.verify(deep=True)
    assert report.ok
    assert report.notes == []


def test_a_segment_that_is_being_written_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    stage_together, reports = LocalDisk.stage_together, []

    def looked_at(buffers: Iterable[Bytes]) -> Iterator[Bytes]:
        for each in buffers:
            yield each
            reports.append(beside.verify(deep=True))

    def looked_at_meanwhile(disk: LocalDisk, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        stage_together(disk, [(path, looked_at(buffers)) for path, buffers in files])

    with kmq.open(tmp_path) as store, kmq.open(tmp_path, read_only=True) as beside:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"0").result(10)
        monkeypatch.setattr(LocalDisk, "stage_together", looked_at_meanwhile)
        store.seal()
    assert any(report.unreferenced for report in reports)
    assert [report.notes for report in reports if report.notes] == []
