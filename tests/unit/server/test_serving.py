"""`kmq serve` over HTTP: what is answered."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.server import view as looking
from kmq_spark.server.answers import ARROW
from kmq_spark.server.listening import Listener
from kmq_storage.environment import SYSTEM
from kmq_storage.tables.columns import COLUMNS
from tests.support.damage import flip
from tests.unit.server.exposition import parse
from tests.unit.server.made import ALL, ODD, SECRET, ask, listening, make_store


def _rows(listener: Listener, target: str) -> list[dict[str, Any]]:
    status, headers, content = ask(listener, target)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    rows: list[dict[str, Any]] = json.loads(content)
    return rows


def _files(url: str) -> dict[str, tuple[int, bytes]]:
    paths = [path for path in Path(url).rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths} | {
        str(path): (path.stat().st_mtime_ns, b"") for path in Path(url).rglob("*") if path.is_dir()
    }


def test_tables_are_answered_as_json(served: Listener):
    assert [row["topic"] for row in _rows(served, "/tables/topics")] == [ODD, "orders"]
    ends = {(r["topic"], r["partition"]): r["end"] for r in _rows(served, "/tables/partitions")}
    assert ends == {(ODD, 0): 1, ("orders", 0): 3, ("orders", 1): 3}
    assert [(row["group"], row["lag"]) for row in _rows(served, "/tables/groups")] == [
        ("audit", 2),
        ("audit", 3),
    ]
    assert _rows(served, "/tables/members") == []
    mails = next(row for row in _rows(served, "/tables/queues") if row["queue"] == "mails")
    states = ("ready", "locked", "delayed", "acked", "dead")
    assert [mails[state] for state in states] == [4, 0, 1, 1, 1]
    assert {row["kind"] for row in _rows(served, "/tables/segments")} == {"sealed"}
    commits = _rows(served, "/tables/commits")
    assert [row["lsn"] for row in commits] == [*range(1, len(commits) + 1)]


def test_a_live_member_is_shown_with_its_partitions(url: str, served: Listener):
    with (
        kmq.open(url, maintenance=False) as store,
        store.consumer("readers", topics=["orders"], name="me"),
    ):
        (member,) = _rows(served, "/tables/members")
        assert (member["name"], member["assignment"]) == ("me", {"orders": [0, 1]})
        found = parse(ask(served, "/metrics")[2].decode())["kmq_group_members"].samples
        assert found[frozenset({("group", "readers")})] == 1


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_is_answered_as_an_arrow_stream_to_who_asks_for_one(served: Listener, name: str):
    _, headers, content = ask(served, f"/tables/{name}", Accept=f"text/html;q=0.1, {ARROW};q=1")
    table = pa.ipc.open_stream(content).read_all()
    assert headers["Content-Type"] == ARROW
    assert table.schema.equals(COLUMNS[name])
    assert table.num_rows == len(_rows(served, f"/tables/{name}"))


def test_what_is_written_meanwhile_is_seen_by_the_next_request(url: str, served: Listener):
    before = _rows(served, "/tables/partitions")[0]["end"]
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        producer.send(ODD, b"new").result()
    assert _rows(served, "/tables/partitions")[0]["end"] == before + 1


def test_a_limit_leaves_the_newest_commits_and_the_first_rows_of_all_else(served: Listener):
    commits = _rows(served, "/tables/commits")
    assert _rows(served, "/tables/commits?limit=2") == commits[-2:]
    assert len(_rows(served, "/tables/commits?limit=100000")) == len(commits)
    segments = _rows(served, "/tables/segments")
    assert _rows(served, "/tables/segments?limit=1") == segments[:1]
    assert [row["partition"] for row in _rows(served, "/tables/partitions?limit=2")] == [0, 0]


def test_of_long_tables_a_part_is_answered_unless_more_is_asked_for(url: str, served: Listener):
    with kmq.open(url, maintenance=False) as store:
        for number in range(120):
            store.set_group_offsets("busy", {"orders": {0: number % 3}})
    rows = _rows(served, "/tables/commits")
    everything = _rows(served, "/tables/commits?limit=100000")
    assert (len(rows), rows) == (100, everything[-100:])
    assert len(everything) > 120


WRONG = ("limit=0", "limit=-1", "limit=x", "limit=", "limit=100001", "limit=%C2%B2", "from=3")


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_limit_is_refused_with_what_it_takes(served: Listener, query: str):
    status, _, content = ask(served, f"/tables/commits?{query}")
    assert (status, b"limit" in content, content.count(b"\n")) == (400, True, 1)


def test_metrics_are_those_of_the_store(served: Listener):
    status, headers, content = ask(served, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = parse(content.decode())
    place = frozenset({("topic", "orders"), ("partition", "1"), ("group", "audit")})
    assert found["kmq_group_lag_offsets"].samples[place] == 3
    mails = frozenset({("queue", "mails"), ("state", "ready")})
    assert found["kmq_queue_records"].samples[mails] == 4
    assert found["kmq_queue_dead_total"].samples[frozenset({("queue", "mails")})] == 1
    assert found["kmq_store_files"].samples[frozenset({("kind", "segments")})] > 0
    assert found["kmq_log_damaged"].samples == {frozenset(): 0}


def test_the_page_shows_what_there_is_by_its_name(served: Listener):
    status, headers, content = ask(served, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    for name in (ODD, "orders", "audit", "mails", "segments"):
        assert f">{name}<" in content.decode()


def test_no_content_of_a_record_leaves(served: Listener):
    for target in ALL:
        status, _, content = ask(served, target)
        assert (status, SECRET in content) == (200, False), target
        assert SECRET not in ask(served, target, Accept=ARROW)[2]


def test_looking_changes_nothing_in_the_store(url: str):
    before = _files(url)
    with listening(url) as listener:
        assert {ask(listener, target)[0] for target in ALL} == {200}
        ask(listener, "/", method="DELETE")
    assert _files(url) == before


@pytest.mark.parametrize("target", ALL)
def test_a_head_is_answered_as_a_get_without_its_content(served: Listener, target: str):
    status, headers, content = ask(served, target, method="HEAD")
    got = ask(served, target)[1]
    assert (status, content, headers["Content-Type"]) == (200, b"", got["Content-Type"])
    assert int(headers["Content-Length"]) > 0


ELSEWHERE = (
    *("/nothing", "/tables", "/tables/", "/tables/nothing", "/tables/topics/", "/Metrics"),
    *("/tables/../kmq.json", "/kmq.json", "/log", "//", "/%2e%2e/kmq.json", "*", "/tables/__len__"),
)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_nothing_else_is_there(served: Listener, target: str):
    assert ask(served, target)[0] in ({200} if target == "//" else {404})


def _assert_unavailable(listener: Listener, told: bytes) -> None:
    for target in ALL:
        status, _, content = ask(listener, target)
        assert (status, told in content, content.count(b"\n")) == (503, True, 1), target


def test_a_store_that_goes_is_told_and_seen_again_when_it_is_back(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_COUNTED_FOR", 0.0)
    with listening(url) as listener:
        assert {ask(listener, target)[0] for target in ALL} == {200}
        os.rename(url, f"{url}-away")
        assert ask(listener, "/health")[0] == 503
        _assert_unavailable(listener, b"doesn't exist")
        os.rename(f"{url}-away", url)
        assert {ask(listener, target)[0] for target in ALL} == {200}
        shutil.rmtree(url)
        assert ask(listener, "/health")[0] == 503
        _assert_unavailable(listener, b"doesn't exist")
        with kmq.open(url, maintenance=False) as store:
            store.create_topic("another")
        assert [row["topic"] for row in _rows(listener, "/tables/topics")] == ["another"]


def test_a_bucket_that_was_emptied_is_no_store_without_news(s3_url: str):
    from kmq_storage.objects.open import open_files

    make_store(s3_url)
    with listening(s3_url) as listener:
        assert {ask(listener, target)[0] for target in ALL} == {200}
        files = open_files(s3_url)
        for found in [file.path for file in files.walk("")]:
            files.remove(found)
        assert ask(listener, "/health")[0] == 503


def test_a_damaged_log_is_told_and_all_else_shown(url: str):
    log = Path(url) / "log" / "00000000000000000001.log"
    written = len(log.read_bytes().rstrip(b"\0"))
    with kmq.open(url, maintenance=False) as store:
        store.set_group_offsets("late", {"orders": {0: 1}})
    flip(log, written + 40)
    with listening(url) as listener:
        status, _, content = ask(listener, "/health")
        assert (status, b"are damaged" in content, content.count(b"\n")) == (503, True, 1)
        status, _, content = ask(listener, "/")
        assert (status, b"are damaged" in content, b">orders<" in content) == (200, True, True)
        found = parse(ask(listener, "/metrics")[2].decode())
        assert found["kmq_log_damaged"].samples == {frozenset(): 1}
        assert ask(listener, "/tables/commits")[0] == 503


def test_a_damaged_page_is_told_and_what_needs_none_shown(url: str):
    with kmq.open(url, maintenance=False) as store:
        store.set_group_offsets("late", {"orders": {0: 1}})
        store.seal()
        store.checkpoint()
    pages = sorted((Path(url) / "pages").iterdir())
    for file in pages:
        flip(file, file.stat().st_size // 2)
    with listening(url) as listener:
        assert ask(listener, "/health")[0] == 200
        status, _, content = ask(listener, "/")
        assert (status, b"They can't be counted" in content) == (200, True)
        assert (b">orders<" in content, b"partitions" in content) == (True, True)
        told = content.partition(b'class="damage">')[2].partition(b"</p>")[0]
        assert any(file.name.encode() in told for file in pages)
        status, _, content = ask(listener, "/metrics")
        found = parse(content.decode())
        assert (status, found["kmq_log_damaged"].samples) == (200, {frozenset(): 1})
        assert found["kmq_partition_end_offset"].samples
        assert ask(listener, "/tables/segments")[0] == 503


@pytest.mark.parametrize(("taken", "pause"), [(1.0, 60.0), (30.0, 300.0)])
def test_files_are_counted_now_and_then_and_rarely_where_that_takes_long(
    url: str, taken: float, pause: float, monkeypatch: pytest.MonkeyPatch
):
    opened: list[float] = []
    now = 0.0

    def opening() -> kmq.Store:
        nonlocal now
        opened.append(now)
        now += taken
        return kmq.open(url, read_only=True)

    monkeypatch.setattr(looking, "SYSTEM", replace(SYSTEM, monotonic=lambda: now))
    view = looking.View(opening)
    for moment in (0.0, taken + pause - 0.1, taken + pause):
        now = moment
        view.stats()
    assert opened == [0.0, taken + pause]


def test_while_files_are_counted_anew_nobody_else_waits_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_COUNTED_FOR", 0.0)
    monkeypatch.setattr(looking, "_TIMES", 0)
    counting, counted = Event(), Event()
    counted.set()

    def opening() -> kmq.Store:
        counting.set()
        assert counted.wait(60)
        return kmq.open(url, read_only=True)

    view = looking.View(opening)
    last = view.stats()
    counting.clear()
    counted.clear()
    slow = Thread(target=view.stats)
    slow.start()
    assert counting.wait(60)
    assert view.stats() is last
    counted.set()
    slow.join()
    assert view.stats() is not last


def test_a_store_in_a_folder_whose_name_is_no_utf_8_is_shown(tmp_path: Path):
    url = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    make_store(url)
    with listening(url) as listener:
        assert {ask(listener, target)[0] for target in ALL} == {200}
        shutil.rmtree(url)
        status, _, content = ask(listener, "/health")
        assert (status, rb"caf\udce9" in content) == (503, True)


def test_a_store_without_a_commit_is_shown(tmp_path: Path):
    kmq.open(tmp_path / "empty").close()
    with listening(tmp_path / "empty") as listener:
        assert {ask(listener, target)[0] for target in ALL} == {200}
        assert b"no commit yet" in ask(listener, "/")[2]
