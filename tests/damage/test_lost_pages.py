"""Pages of the manifest that neither an older checkpoint nor the log says again.

Finds: a store with years of data that one changed bit of a page makes unreadable for good.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.format.manifest import SEGMENT, Row
from kmq_storage.integrity.remains.segments import without_overlaps
from kmq_storage.log.checkpoints import paging
from kmq_storage.objects.local import LocalDisk
from tests.support.damage import flip
from tests.support.dying_disk import Died, die
from tests.support.engine import Sent, send_rows
from tests.support.storage import open_log

_FILE_BYTES = 16 * 1024


@contextmanager
def _opened(folder: Path) -> Iterator[kmq.Store]:
    """A store with small log files."""
    log = open_log(LocalDisk(folder), durable=False, file_bytes=_FILE_BYTES)
    with kmq.Store(log, maintenance=False) as store:
        yield store


def _send(store: kmq.Store, first: int, count: int) -> None:
    with store.producer(batch_bytes=2_000) as producer:
        for number in range(first, first + count):
            key = b"%d" % (number % 7)
            producer.send("plain", b"%d" % number, key, partition=number % 2)
            producer.send("kept", b"%d" % number, key)
            producer.send("typed", {"a": number, "b": "x"})


def _contents(store: kmq.Store) -> dict[str, pa.Table]:
    return {topic.name: store.read(topic.name).read_all() for topic in store.topics()}


def _collected(folder: Path) -> dict[str, pa.Table]:
    """A store whose log begins behind most of what it holds; what that is."""
    with _opened(folder) as store:
        store.create_topic("plain", partitions=2)
        store.create_topic("kept", cleanup="compact")
        store.create_topic("typed", schema=pa.schema([("a", pa.int64()), ("b", pa.string())]))
        for first in range(0, 400, 100):
            _send(store, first, 100)
            store.seal()
        queues = store.keyed_queues("queues")
        queues.put_batch([f"q{number % 5}" for number in range(100)], [b"m"] * 100)
        store.compact("kept")
        store.trim("plain", {0: 30})
        store.seal()
        for first in range(400, 600, 50):
            _send(store, first, 50)  # in the log, and in the pages
            store.checkpoint()
            store.collect(grace=0)
        _send(store, 600, 20)
        with pytest.raises(kmq.OffsetOutOfRangeError):
            next(iter(store.commits(1)))
        return _contents(store)


@pytest.fixture(params=[4, 4096])
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_ROWS", request.param)
    monkeypatch.setattr(paging, "_PAGE_ROWS_MIN", request.param // 4)


def _flip(page: Path) -> None:
    flip(page, 700)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("damage", [_flip, os.remove])
@pytest.mark.parametrize("seed", [1, 2])
def test_pages_are_made_anew_from_segments_and_the_log_and_nothing_is_lost(
    tmp_path: Path, damage: Callable[[Path], None], seed: int
):
    contents = _collected(tmp_path / "store")
    pages = sorted((tmp_path / "store" / "pages").iterdir())
    for page in random.Random(seed).sample(pages, min(seed, len(pages))):
        damage(page)
    with _opened(tmp_path / "store") as store:
        report = store.repair()
        assert report.ok, report.damage
        found = _contents(store)
        assert {name: table.num_rows for name, table in found.items()} == {
            name: table.num_rows for name, table in contents.items()
        }
        assert all(found[name].equals(table) for name, table in contents.items())
        _send(store, 620, 5)
        store.seal()
        store.compact("plain")
    with _opened(tmp_path / "store") as store:
        assert store.verify(deep=True).ok
        assert store.read("plain").read_all().num_rows == contents["plain"].num_rows + 5


def test_what_stands_nowhere_any_more_is_given_up_only_when_that_is_asked_for(tmp_path: Path):
    contents = _collected(tmp_path / "store")
    for page in (tmp_path / "store" / "pages").iterdir():
        _flip(page)
    with _opened(tmp_path / "store") as store:
        topic = store.describe_topic("typed").topic_id.hex
    first = min((tmp_path / "store" / "segments" / topic / "0").iterdir())
    first.unlink()
    with _opened(tmp_path / "store") as store:
        report = store.repair()
        assert not report.ok
        assert {each.file.partition("/")[0] for each in report.damage} == {"pages"}
        assert store.repair(drop_damaged=True).ok
        with pytest.raises(kmq.DataLossError) as lost:
            store.read("typed").read_all()
        assert lost.value.context["start"] == 0
        end = lost.value.context["end"]
        whole = store.read("typed", start={0: end}).read_all()
        assert whole.equals(contents["typed"].slice(end))
        assert store.read("plain").read_all().equals(contents["plain"])
        assert store.describe_topic("typed").rows == whole.num_rows


@pytest.mark.parametrize("part", ["nothing", "footer", "batch"])
def test_what_was_sealed_since_the_checkpoint_of_a_lost_page_stands_in_its_segment(
    tmp_path: Path, part: str
):
    with kmq.Store(open_log(LocalDisk(tmp_path), file_bytes=4096), maintenance=False) as store:
        store.create_topic("t", partitions=2)
        send_rows(store.log, "t", [Sent(None, b"first"), Sent(None, b"second")], staged=True)
        store.checkpoint()
        for _ in range(2):
            with store.producer() as producer:
                producer.send("t", b"x" * 3000, partition=1)
        store.seal()
        store.collect(grace=0)
        with pytest.raises(kmq.OffsetOutOfRangeError):
            next(iter(store.commits(1)))
        with store.producer() as producer:
            producer.send("t", b"third", partition=0)
        (row,) = store.log.refresh().topic("t").index(0).rows(0, 2)
    (page,) = (tmp_path / "pages").iterdir()
    _flip(page)
    (segment,) = (tmp_path / "segments").rglob("0/*.arrow")
    if part != "nothing":
        flip(segment, segment.read_bytes().index(b"first") if part == "batch" else row.position)
    with _opened(tmp_path) as store:
        assert store.repair().ok == (part != "batch")
        assert store.repair(drop_damaged=True).damage == []
        start = {0: 2 if part == "batch" else 0}
        values = store.read("t", partitions=[0], start=start).read_all()["value"].to_pylist()
        assert values == [b"first", b"second", b"third"][start[0] :]
        assert store.verify(deep=True).damage == []


@pytest.mark.parametrize("step", ["stage", "publish", "remove"])
def test_a_repair_of_pages_that_dies_at_a_step_is_ended_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    contents = _collected(tmp_path / "store")
    for page in (tmp_path / "store" / "pages").iterdir():
        _flip(page)

    with monkeypatch.context() as patch, _opened(tmp_path / "store") as store:
        patch.setattr(LocalDisk, step, die)
        with pytest.raises(Died):
            store.repair()
    with _opened(tmp_path / "store") as store:
        assert store.repair().ok
        found = _contents(store)
        assert all(found[name].equals(table) for name, table in contents.items())


def test_a_damaged_batch_costs_its_own_records_and_not_those_of_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with _opened(tmp_path / "store") as store:
        store.create_topic("t")
        for first in range(0, 300, 10):
            with store.producer() as producer:
                producer.send_batch("t", [b"%d" % n for n in range(first, first + 10)]).result(10)
        with monkeypatch.context() as patch:
            patch.setattr(limits, "BATCH_ROWS_MAX", 10)
            store.seal()
        store.checkpoint()
        store.collect(grace=0)
    (page,) = (tmp_path / "store" / "pages").iterdir()
    _flip(page)
    (segment,) = (tmp_path / "store" / "segments").rglob("*.arrow")
    flip(segment, segment.stat().st_size // 3)
    with _opened(tmp_path / "store") as store:
        report = store.repair()
        assert [Path(each.file).name for each in report.damage] == [segment.name]
        assert store.repair(drop_damaged=True).ok
        with pytest.raises(kmq.DataLossError) as lost:
            store.read("t").read_all()
        start, end = lost.value.context["start"], lost.value.context["end"]
        assert end - start == 10
        before = store.read("t", end={0: start}).read_all()["value"].to_pylist()
        behind = store.read("t", start={0: end}).read_all()["value"].to_pylist()
        assert before == [b"%d" % number for number in range(start)]
        assert behind == [b"%d" % number for number in range(end, 300)]


def test_a_handle_that_met_a_damaged_page_goes_on_behind_a_repair(tmp_path: Path):
    contents = _collected(tmp_path / "store")
    for page in (tmp_path / "store" / "pages").iterdir():
        _flip(page)
    with _opened(tmp_path / "store") as met:
        with pytest.raises(kmq.CorruptionError, match="kmq repair"):
            met.read("plain").read_all()
        with _opened(tmp_path / "store") as store:
            assert store.repair().ok
        assert met.read("plain").read_all().equals(contents["plain"])


def _row(base: int, end: int) -> Row:
    file = base.to_bytes(8, "big") + end.to_bytes(8, "big")
    return Row(base, end, end - base, SEGMENT, file, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("spans", "chosen"),
    [
        ([(0, 300), (0, 250), (250, 400)], [(0, 250), (250, 400)]),  # one that nobody committed
        ([(0, 100), (100, 200), (0, 200)], [(0, 200)]),
        ([(0, 100), (50, 300), (300, 310), (290, 320)], [(50, 300), (300, 310)]),
        ([(5, 6)], [(5, 6)]),
        ([], []),
    ],
)
def test_of_rows_that_overlap_those_count_that_cover_the_most_together(
    spans: list[tuple[int, int]], chosen: list[tuple[int, int]]
):
    found = without_overlaps([_row(*span) for span in spans], set(), set())
    assert [(row.base_offset, row.end_offset) for row in found] == chosen


def test_a_damaged_segment_counts_only_where_no_whole_ones_are():
    whole, merged = [_row(0, 100), _row(100, 200)], _row(0, 200)
    assert without_overlaps([*whole, merged], set(), {merged.file}) == whole
    assert without_overlaps([whole[0], merged], set(), {merged.file}) == [merged]
