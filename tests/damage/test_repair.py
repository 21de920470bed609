"""Repair loses nothing by itself; what it is told to give up becomes gaps that readers are told."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage import paths
from kmq_storage.log.disk.behind import go_on_behind
from kmq_storage.log.state.lost_ranges import Unnamed
from kmq_storage.objects.local import LocalDisk
from tests.damage.store import Contents, make_store, read_partition
from tests.damage.sweep import Harm, harms
from tests.support.counting_bucket import CountingBucket
from tests.support.damage import flip
from tests.support.storage import open_log

KINDS = ("log/0", "staged", "segments", "checkpoints", "pages", "pins", "slips", "log/hint")
SAMPLES = 4


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("repair") / "store"
    return folder, make_store(folder)


@pytest.fixture
def folder(original: tuple[Path, Contents], tmp_path: Path) -> Path:
    return Path(shutil.copytree(original[0], tmp_path / "store"))


@pytest.fixture
def expected(original: tuple[Path, Contents]) -> Contents:
    return original[1]


def harmed(folder: Path, harm: Harm) -> None:
    """Change or cut one file for good."""
    path = folder / harm.file
    if harm.bits:
        flip(path, harm.position, harm.bits)
    else:
        os.truncate(path, harm.position)


def _read_around(
    store: kmq.Store, topic: str, partition: int
) -> tuple[list[tuple[int, object]], list[range]]:
    """Records of a partition, going on behind each loss as its error says."""
    position, end = store.offsets(topic)[partition]
    found: list[tuple[int, object]] = []
    lost: list[range] = []
    while position < end:
        try:
            found += read_partition(store, topic, partition, position)
            break
        except kmq.DataLossError as error:
            gap = range(error.context["start"], error.context["end"])
            if position < gap.start:
                found += read_partition(store, topic, partition, position, gap.start)
            lost.append(gap)
            position = gap.stop
    return found, lost


def check_contents(store: kmq.Store, expected: Contents) -> list[range]:
    """Every record is there but for those whose loss is told; the ranges of those."""
    all_lost = []
    for (topic, partition), records in expected.items():
        found, lost = _read_around(store, topic, partition)
        kept = [each for each in records if not any(each[0] in gap for gap in lost)]
        assert [each for each in found if each[0] <= records[-1][0]] == kept
        all_lost += lost
    return all_lost


def goes_on(store: kmq.Store) -> None:
    """Producers, maintenance and collection work, and the store is whole after them."""
    with store.producer() as producer:
        for topic in ("t", "mapped", "packed"):
            producer.send(topic, b"new", partition=1).result()
    store.seal()
    store.compact("mapped")
    store.maintain()
    store.checkpoint()
    store.collect(grace=0)
    assert store.verify(deep=True).damage == []


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_repair_the_store_is_whole_and_every_loss_is_told(
    original: tuple[Path, Contents], tmp_path: Path, kind: str
):
    source, expected = original
    possible = [each for each in harms(source, 60, seed=3) if each.file.startswith(kind)]
    assert possible
    for number, harm in enumerate(random.Random(4).sample(possible, min(SAMPLES, len(possible)))):
        folder = Path(shutil.copytree(source, tmp_path / str(number)))
        harmed(folder, harm)
        with kmq.open(folder) as store:
            report = store.repair(drop_damaged=True)
            assert report.damage == [], harm
            check_contents(store, expected)
            goes_on(store)
        with kmq.open(folder) as store:
            check_contents(store, expected)


@pytest.mark.parametrize("kind", ["checkpoints", "pages"])
def test_a_damaged_manifest_is_made_anew_and_nothing_is_lost(
    folder: Path, expected: Contents, kind: str
):
    for path in sorted((folder / kind).iterdir())[-2:]:
        harmed(folder, Harm(f"{kind}/{path.name}", 100, 1))
    with kmq.open(folder) as store:
        assert store.repair().ok
        assert check_contents(store, expected) == []
        goes_on(store)


def frame_with(value: bytes) -> Callable[[Path], Harm]:
    """A changed header of the first frame with this value in the newest log file that has it."""

    def harm(folder: Path) -> Harm:
        for log in sorted((folder / "log").glob("*.log"), reverse=True):
            contents = log.read_bytes()
            if value in contents:
                at = contents.rindex(b"KMQ1", 0, contents.index(value))
                return Harm(f"log/{log.name}", at + 20, 1)
        raise AssertionError(value)

    return harm


def test_repair_alone_gives_up_no_record(folder: Path):
    harmed(folder, frame_with(b"inside 2")(folder))
    before = {path: path.read_bytes() for path in folder.rglob("*.log")}
    with kmq.open(folder) as store:
        report = store.repair()
    assert not report.ok
    assert {path: path.read_bytes() for path in folder.rglob("*.log")} == before


def test_a_commit_lost_in_the_middle_is_a_gap_of_exactly_its_offsets(
    folder: Path, expected: Contents
):
    harmed(folder, frame_with(b"inside 2")(folder))
    with kmq.open(folder) as store:
        assert store.repair(drop_damaged=True).ok
        assert range(12, 14) in check_contents(store, expected)
        goes_on(store)


def test_behind_a_lost_end_of_the_log_no_offset_is_given_out_again(
    folder: Path, expected: Contents
):
    harmed(folder, frame_with(b"again")(folder))
    ends = {key: records[-1][0] + 1 for key, records in expected.items()}
    with kmq.open(folder) as store:
        with pytest.raises(kmq.CorruptionError), store.producer() as producer:
            producer.send("t", b"x", partition=1).result()
        assert store.repair(drop_damaged=True).ok
        check_contents(store, expected)
        with store.producer() as producer:
            sent = producer.send("t", b"x", partition=1).result()
        assert sent.offset >= ends["t", 1]
        goes_on(store)


def test_handles_that_are_open_go_on_after_a_repair_by_another(folder: Path, expected: Contents):
    with kmq.open(folder) as other:
        other.offsets("t")
        harmed(folder, frame_with(b"again")(folder))
        with kmq.open(folder) as store:
            assert store.repair(drop_damaged=True).ok
        with other.producer() as producer:
            offset = producer.send("t", b"x", partition=1).result().offset
        assert read_partition(other, "t", 1, offset) == [(offset, b"x")]


def test_a_consumer_is_told_the_range_and_goes_on_by_seeking(folder: Path):
    harmed(folder, frame_with(b"inside 2")(folder))
    with kmq.open(folder) as store:
        store.repair(drop_damaged=True)
        consumer = store.consumer()
        consumer.assign({"t": [0]})
        before = [record.offset for record in consumer.consume(12, timeout=5)]
        with pytest.raises(kmq.DataLossError) as caught:
            consumer.consume(100, timeout=5)
        assert (caught.value.context["start"], caught.value.context["end"]) == (12, 14)
        consumer.seek("t", 0, caught.value.context["end"])
        behind = [record.offset for record in consumer.consume(100, timeout=5)]
        consumer.close()
    assert (before, behind) == (list(range(12)), [14, 15])


def test_a_segment_keeps_its_whole_batches(tmp_path: Path):
    with kmq.open(tmp_path) as store:
        store.create_topic("t")
        with store.producer() as producer:
            for number in range(4):
                values = [b"%d-%d" % (number, row) for row in range(40_000)]
                producer.send_batch("t", values).result()
        store.seal()
        expected = {("t", 0): read_partition(store, "t", 0)}
    (segment,) = (tmp_path / "segments").rglob("*.arrow")
    position = segment.read_bytes().index(b"2-100")
    harmed(tmp_path, Harm(str(segment.relative_to(tmp_path)), position, 1))
    with kmq.open(tmp_path) as store:
        assert store.repair(drop_damaged=True).ok
        (lost,) = check_contents(store, expected)
        assert len(lost) <= 40_000
        assert 80_100 in lost


def test_the_command_repairs_and_ends_with_0_when_all_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    harmed(folder, frame_with(b"inside 2")(folder))
    assert main(["--store", str(folder), "--json", "repair"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["--store", str(folder), "--json", "repair", "--drop-damaged"]) == 0
    assert any(
        "t-0: offsets 12 to 13" in note for note in json.loads(capsys.readouterr().out)["notes"]
    )
    assert main(["--store", str(folder), "verify", "--deep"]) == 0


def test_a_manifest_that_is_lost_whole_comes_back_from_segments_and_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with kmq.open(tmp_path) as store:
        store.create_topic("t", partitions=2)
        with store.producer() as producer:
            for number in range(90):
                producer.send("t", b"%d" % number, partition=number % 2)
                if number % 30 == 29:
                    producer.flush()
                    store.seal()
        store.repair(drop_damaged=True)
        store.compact("t")
        go_on_behind(store.log.files, store.log.identity, store.log.environment, Unnamed())
        store.log.drop_before(store.log.reload().lsn + 1)
        with store.producer() as producer:
            producer.send("t", b"in the log", partition=1).result()
        expected = {("t", part): read_partition(store, "t", part) for part in range(2)}
    for folder in ("checkpoints", "pages"):
        shutil.rmtree(tmp_path / folder)
    with pytest.raises(kmq.CorruptionError, match="no checkpoint"):
        kmq.open(tmp_path)
    assert main(["--store", str(tmp_path), "repair"]) == 1
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    assert "a manifest was made from segments" in capsys.readouterr().out
    with kmq.open(tmp_path) as store:
        (behind,) = check_contents(store, expected)  # of what was sent last nobody tells
        assert behind.start == 45
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("pieces", [True, False])
def test_segments_that_were_merged_since_with_what_the_log_has_hide_nothing_before_it(
    tmp_path: Path, pieces: bool
):
    with kmq.Store(open_log(LocalDisk(tmp_path), file_bytes=8 * 1024), maintenance=False) as store:
        store.create_topic("t")
        for first in range(0, 900, 100):
            with store.producer() as producer:
                for number in range(first, first + 100):
                    producer.send("t", b"%d" % number)
            if first < 300:
                store.seal()
            if first in (300, 800):
                store.checkpoint()
                store.collect(grace=0)
        store.seal()
        sealed = set((tmp_path / "segments").rglob("*.arrow"))
        store.compact("t")
        expected = {("t", 0): read_partition(store, "t", 0)}
    for file in (tmp_path / "checkpoints").iterdir():
        flip(file, 700)
    for file in () if pieces else sealed:
        file.unlink()
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path) as store:
        assert check_contents(store, expected) == []
        assert store.describe_topic("t").rows == 900
        assert store.verify(deep=True).ok


def test_typed_topics_come_back_from_segments_with_all_versions_of_their_schemas(tmp_path: Path):
    first = pa.schema([("price", pa.int32()), ("name", pa.dictionary(pa.int8(), pa.string()))])
    second = pa.schema([("price", pa.int64()), *list(first)[1:], ("more", pa.list_(pa.string()))])
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("typed", schema=first)
        for number, schema in enumerate((first, second)):
            store.alter_topic("typed", schema=schema)
            with store.producer() as producer:
                for price in range(3):
                    producer.send("typed", {"price": price, "name": f"n{number}"}, key=b"k")
                producer.send("typed", None, key=b"gone")
            store.seal()
        store.checkpoint()
        store.log.drop_before(store.log.reload().lsn + 1)
        expected = store.read("typed").read_all()
        with store.producer() as producer:
            producer.send("typed", {"price": 2**40, "name": "log", "more": ["x"]}).result(10)
    for folder in ("checkpoints", "pages", "log"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "log").mkdir()
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path) as store:
        assert store.read("typed", end={0: len(expected)}).read_all().equals(expected)
        with store.producer() as producer:
            sent = producer.send("typed", {"price": 2**40, "name": "n", "more": ["x"]})
            assert sent.result(10).offset > len(expected) + 1  # none is given out twice
        assert store.verify(deep=True).ok


def test_log_files_that_are_lost_behind_a_checkpoint_become_gaps(folder: Path, expected: Contents):
    for log in sorted((folder / "log").glob("*.log"))[:-1]:
        log.unlink()
    assert main(["--store", str(folder), "repair", "--drop-damaged"]) == 0
    with kmq.open(folder) as store:
        assert check_contents(store, expected) != []
        goes_on(store)


@pytest.mark.parametrize("bytes_more", [-100, 1])
@pytest.mark.parametrize("which", [min, max])
def test_a_log_file_of_another_size_gets_its_own_back_and_loses_nothing(
    folder: Path, expected: Contents, bytes_more: int, which: Callable[[Iterable[Path]], Path]
):
    log = which((folder / "log").glob("*.log"))
    size = log.stat().st_size
    os.truncate(log, size + bytes_more)
    with kmq.open(folder) as store:
        report = store.repair()
        assert (report.ok, report.damage) == (True, [])
        assert any(f"log/{log.name}" in note for note in report.notes)
        assert log.stat().st_size == size
        assert check_contents(store, expected) == []
        goes_on(store)


@pytest.mark.parametrize("bucket", [False, True])
def test_a_kmq_json_that_says_what_it_should_in_other_bytes_is_written_again(
    folder: Path, bucket: bool
):
    files = CountingBucket("memory-bucket://identity")
    with files.store() if bucket else kmq.open(folder) as store:
        before = store.log.files.read(paths.STORE_FILE)
        if bucket:
            files.objects[paths.STORE_FILE] = before[:-1]
        else:
            (folder / paths.STORE_FILE).write_bytes(before[:-1])
        assert [each.file for each in store.verify().damage] == [paths.STORE_FILE]
        assert store.repair().ok
        assert store.log.files.read(paths.STORE_FILE) == before


def test_bytes_behind_a_staged_file_go_with_it_when_its_records_are_moved(
    folder: Path, expected: Contents
):
    with kmq.open(folder) as store:
        staged = (folder / "staged").glob("*.ipc")
        file = max(staged, key=lambda path: path.stat().st_mtime_ns)  # no older checkpoint's
        file.write_bytes(file.read_bytes() + b"x")
        assert store.repair().ok
        assert check_contents(store, expected) == []


def test_a_trim_that_is_lost_with_its_commit_is_told_and_what_it_gave_up_is_back(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        producer = store.producer()
        producer.send_batch("t", [b"%d" % number for number in range(100)]).result()
        store.trim("t", {0: 60})
        lost = store.log.refresh().lsn
        producer.send("t", b"later").result()
    log = next((tmp_path / "log").glob("*.log"))
    contents = bytearray(log.read_bytes())
    contents[contents.index(b"KMQ1\0\0\x80\0" + lost.to_bytes(8, "little")) + 40] ^= 1
    log.write_bytes(contents)
    with kmq.open(tmp_path, maintenance=False) as store:
        report = store.repair(drop_damaged=True)
        assert report.ok
        assert f"commits {lost} to {lost}" in report.notes[0]
        assert "also trims" in report.notes[0]
        assert store.offsets("t") == {0: (0, 101)}
        assert store.read("t").read_all().num_rows == 101
