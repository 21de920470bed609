"""The commit log on a server that answers wrongly, late or not at all.

Finds a commit that is lost or stored twice because an answer was believed: "exists" for our own
object, an error for one that was written, a 404 for one that is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from kmq_storage import limits
from kmq_storage.errors import CommitOutcomeUnknownError, CorruptionError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.objects.open import open_files
from tests.contract.racing import COMMITS, HANG_SECONDS, doubtful, handles_by, race
from tests.support.fault_proxy import DOUBTFUL, Fault, FaultProxy, Request, sometimes
from tests.support.google import GoogleFront
from tests.support.s3 import S3Server
from tests.support.storage import make_topic, send, values_of

#: A server whose answer was lost and that is asked again may know nothing of the upload any more.
_ENDED = (Fault.UNAVAILABLE_AFTER, Fault.RESET_AFTER, Fault.HANG_AFTER, Fault.STALE_404)


@pytest.fixture(params=[FaultProxy, GoogleFront], ids=["s3", "gs"])
def proxy(moto: S3Server, request: pytest.FixtureRequest) -> Iterator[FaultProxy]:
    with request.param(moto, hang_seconds=HANG_SECONDS) as started:
        yield started


@pytest.fixture
def open_handle(proxy: FaultProxy) -> Callable[[], CommitLog]:
    return handles_by(proxy)


@pytest.fixture
def log(open_handle: Callable[[], CommitLog]) -> CommitLog:
    opened = open_handle()
    make_topic(opened)
    return opened


@pytest.mark.parametrize("fault", DOUBTFUL, ids=lambda fault: fault.name)
def test_a_commit_whose_answer_is_doubtful_is_stored_once(
    proxy: FaultProxy, log: CommitLog, open_handle: Callable[[], CommitLog], fault: Fault
):
    proxy.choose = sometimes(fault, 0.4)
    for n in range(COMMITS):
        assert send(log, b"%d" % n).lsn == n + 2
    proxy.choose = lambda request: None
    assert values_of(log) == values_of(open_handle()) == [b"%d" % n for n in range(COMMITS)]


def test_racing_writers_lose_and_double_nothing_whatever_is_answered(
    proxy: FaultProxy, open_handle: Callable[[], CommitLog]
):
    race(proxy, open_handle, doubtful())


def test_a_stale_404_hides_no_commit_from_its_writer(proxy: FaultProxy, log: CommitLog):
    stale = [0]

    def choose(request: Request) -> Fault | None:
        if request.conditional and "/log/" in request.path:
            return Fault.RESET_AFTER
        if request.method == "GET" and "/log/" in request.path and stale[0] < 2:
            stale[0] += 1
            return Fault.STALE_404
        return None

    for n in range(4):
        stale[0] = 0
        proxy.choose = choose
        send(log, b"%d" % n)
    proxy.choose = lambda request: None
    assert values_of(log) == [b"0", b"1", b"2", b"3"]


def test_a_reader_with_stale_404s_sees_a_prefix_and_then_the_rest(
    proxy: FaultProxy, log: CommitLog, open_handle: Callable[[], CommitLog]
):
    reader = open_handle()
    for n in range(6):
        send(log, b"%d" % n)
    stale_path = "00000000000000000004.kmq"
    proxy.choose = lambda request: (
        Fault.STALE_404 if request.method == "GET" and request.path.endswith(stale_path) else None
    )
    assert values_of(reader) in ([], [b"0", b"1"])
    proxy.choose = lambda request: None
    assert values_of(reader) == [b"%d" % n for n in range(6)]


def test_a_stale_list_changes_nothing(
    proxy: FaultProxy, log: CommitLog, open_handle: Callable[[], CommitLog]
):
    send(log, b"0")
    proxy.choose = lambda request: Fault.STALE_LIST if request.is_list else None
    other = open_handle()
    send(other, b"1")
    send(log, b"2")
    assert values_of(other) == values_of(open_handle()) == [b"0", b"1", b"2"]


def test_a_store_that_never_answers_leaves_the_outcome_unknown_and_says_so(
    proxy: FaultProxy, log: CommitLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT", 0.3)
    proxy.choose = lambda request: Fault.RESET_BEFORE if request.conditional else None
    with pytest.raises(CommitOutcomeUnknownError):
        send(log, b"x")
    proxy.choose = lambda request: None
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT", 60.0)
    send(log, b"y")
    assert values_of(log) == [b"y"]


def test_an_upload_that_is_applied_after_its_writer_gave_up_is_one_commit(
    proxy: FaultProxy, log: CommitLog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT", 0.1)
    proxy.choose = lambda request: Fault.LATE if request.conditional else None
    with pytest.raises(CommitOutcomeUnknownError):
        send(log, b"late")
    proxy.choose = lambda request: None
    monkeypatch.setattr(limits, "COMMIT_TIMEOUT", 20.0)
    for n in range(3):
        send(log, b"%d" % n)
    found = values_of(log)
    assert [value for value in found if value != b"late"] == [b"0", b"1", b"2"]
    assert found.count(b"late") <= 1


def test_a_write_that_a_store_lost_is_damage_and_nothing_is_written_behind_it(
    proxy: FaultProxy, log: CommitLog, open_handle: Callable[[], CommitLog]
):
    send(log, b"0")
    proxy.choose = sometimes(Fault.LOST, 1.0)
    send(log, b"lost")
    proxy.choose = lambda request: None
    send(log, b"behind")
    later = open_handle()
    assert later.refresh().broken is not None
    with pytest.raises(CorruptionError, match="missing"):
        send(later, b"x")
    with pytest.raises(CorruptionError):
        later.refresh().check_end("t", 0)


@pytest.mark.parametrize("fault", _ENDED, ids=lambda fault: fault.name)
def test_a_large_file_is_whole_though_the_answer_that_its_upload_ended_is_lost(
    proxy: FaultProxy, fault: Fault
):
    files = open_files(proxy.new_url(), storage_options=proxy.options())
    posts: list[Request] = []  # the first begins an upload, the second ends it

    def choose(request: Request) -> Fault | None:
        if request.method == "POST":
            posts.append(request)
        return fault if request in posts[1:] and len(posts) == 2 else None

    proxy.choose = choose
    whole = os.urandom(17_000_000)
    files.stage("staged/a.ipc", [whole], sync=False)
    assert len(posts) >= 2
    assert files.read("staged/a.ipc") == whole
