"""Parts of a store that somebody removed: an error that says so, never a store that is shorter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from tests.support.dying_disk import Died, DyingDisk
from tests.support.storage import make_topic, open_log, send, values_of

LOG = "log/00000000000000000001.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with kmq.open(folder) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"small").result()
            producer.send_batch("t", [bytes(1000)] * 3000).result()
        with store.consumer("g", topics=["t"]) as consumer:
            consumer.consume()
            consumer.commit()
    return folder


def test_a_store_without_its_identity_is_not_taken_for_a_new_one(folder: Path):
    (folder / "kmq.json").unlink()
    before = (folder / LOG).read_bytes()
    with pytest.raises(kmq.CorruptionError, match=r"kmq\.json .* is missing"):
        kmq.open(folder)
    assert not (folder / "kmq.json").exists()
    assert (folder / LOG).read_bytes() == before


@pytest.mark.parametrize("way", ["open", "read", "clone"])
def test_a_store_that_another_process_makes_meanwhile_is_not_taken_for_one_without_its_identity(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
):
    place, exists = tmp_path / "place", LocalDisk.exists

    def too_early(disk: LocalDisk, path: str) -> bool:
        found = exists(disk, path)
        if path == "kmq.json" and disk.root == place and not found:
            monkeypatch.setattr(LocalDisk, "exists", exists)
            with kmq.open(place) as store:
                store.create_topic("t")
        return found

    monkeypatch.setattr(LocalDisk, "exists", too_early)
    if way == "clone":
        with pytest.raises(kmq.AlreadyExistsError):
            kmq.clone(folder, place)
    with kmq.open(place, create=way == "open", read_only=way != "open") as store:
        assert [topic.name for topic in store.topics()] == ["t"]


@pytest.mark.parametrize("call", ["offsets", "read", "describe_topic"])
def test_a_topic_whose_log_file_is_empty_is_damaged_and_not_unknown(folder: Path, call: str):
    os.truncate(folder / LOG, 0)
    with kmq.open(folder) as store, pytest.raises(kmq.CorruptionError, match=LOG):
        getattr(store, call)("t")


def test_a_group_whose_log_file_is_gone_is_damaged_and_not_unknown(folder: Path):
    (folder / LOG).unlink()
    with kmq.open(folder) as store, pytest.raises(kmq.CorruptionError, match="can't be read"):
        store.describe_group("g")


def test_nothing_is_acknowledged_into_a_folder_that_was_removed(folder: Path):
    with kmq.open(folder) as store, store.producer() as producer:
        producer.send("t", b"before").result()
        shutil.rmtree(folder)
        with pytest.raises(kmq.UnavailableError, match="was removed"):
            producer.send("t", b"after").result(10)


def test_a_staged_file_that_was_cut_names_its_partition_and_offsets(folder: Path):
    (staged,) = (folder / "staged").iterdir()
    os.truncate(staged, 1000)
    with kmq.open(folder) as store:
        with pytest.raises(kmq.CorruptionError, match=r"t-0, offsets 1 to .* shorter") as caught:
            store.read("t", start={0: 1}).read_all()
        assert caught.value.context["start"] == 1
        assert store.read("t", end={0: 1}).read_all().num_rows == 1


@pytest.mark.parametrize("read_only", [True, False])
def test_a_staged_file_that_is_gone_before_its_sync_takes_no_other_records_along(
    tmp_path: Path, read_only: bool
):
    with kmq.open(tmp_path / "store", durability="os") as store, store.producer() as producer:
        for topic in "tu":
            store.create_topic(topic)
        producer.send_batch("t", [bytes(1000)] * 3000).result()
        producer.send("t", b"behind").result()
        producer.send("u", b"other").result()
    (staged,) = (tmp_path / "store" / "staged").iterdir()
    staged.unlink()
    with kmq.open(tmp_path / "store", read_only=read_only) as store:
        assert store.offsets("t") == {0: (0, 3001)}
        assert store.read("u").read_all().column("value").to_pylist() == [b"other"]
        behind = store.read("t", start={0: 3000}).read_all()
        assert behind.column("value").to_pylist() == [b"behind"]
        (damage,) = store.verify().damage
        assert (damage.file, damage.start, damage.end) == (f"staged/{staged.name}", 0, 3000)


@pytest.mark.parametrize("how", ["gone", "cut", "changed"])
def test_a_damaged_segment_names_its_partition_its_offsets_and_the_way_out(folder: Path, how: str):
    with kmq.open(folder) as store:
        store.seal()
    (segment,) = folder.glob("segments/*/0/*.arrow")
    whole = segment.read_bytes()
    segment.unlink()
    if how == "cut":
        segment.write_bytes(whole[:-1])
    elif how == "changed":
        segment.write_bytes(whole[:-20] + bytes(20))
    with kmq.open(folder) as store:
        when = datetime(2020, 1, 1, tzinfo=UTC)
        for call in (
            lambda: store.read("t").read_all(),
            lambda: store.offsets_for_time("t", when),
            lambda: store.consumer(topics=["t"]).poll(1.0),
        ):
            with pytest.raises(kmq.CorruptionError, match=r"^t-0, offsets 0 to 3000: ") as told:
                call()
            assert segment.name in told.value.message
            assert "go on from offset 3001" in told.value.message
            assert "kmq repair --drop-damaged" in told.value.message
            context = told.value.context
            assert (context["topic"], context["start"], context["end"]) == ("t", 0, 3001)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("rest", ["nothing", "an empty folder", "the hint page"])
def test_a_store_whose_log_is_gone_is_damaged_and_not_empty(
    folder: Path, rest: str, checkpointed: bool, read_only: bool
):
    if checkpointed:
        with kmq.open(folder) as store:
            store.checkpoint()
            store.create_topic("later")
    hint = (folder / "log" / "hint").read_bytes()
    shutil.rmtree(folder / "log")
    if rest != "nothing":
        (folder / "log").mkdir()
    if rest == "the hint page":
        (folder / "log" / "hint").write_bytes(hint)
    with kmq.open(folder, read_only=read_only) as store:
        with pytest.warns(kmq.KmqWarning, match=r"damaged \(frames are missing\)"):
            store.topics()
        with pytest.raises(kmq.CorruptionError, match="can't be read"):
            store.read("later").read_all()
        with pytest.raises(kmq.CorruptionError):
            list(store.commits())
        assert not store.verify().ok
        if not read_only:
            with pytest.raises(kmq.CorruptionError, match="put it back from a copy"):
                store.create_topic("new")


def test_a_store_that_an_older_version_began_is_known_to_have_begun(folder: Path):
    (folder / "begun").unlink()
    (folder / "log" / "hint").unlink()  # as after a start of the machine
    with kmq.open(folder) as store:
        assert store.offsets("t") == {0: (0, 3001)}
    assert (folder / "begun").exists()


@pytest.mark.parametrize("machine", [False, True])
def test_who_died_while_the_store_was_made_left_no_damage(machine: bool):
    """At each change of the disk up to the first commit; the process, or the machine."""
    for steps in range(4):
        disk = DyingDisk("memory://dying")
        disk.changes_left = steps
        with suppress(Died):
            make_topic(open_log(disk))
        disk.revive()
        if machine:
            disk._words.clear()
        log = open_log(disk)
        if log.refresh().find_topic("t") is None:
            make_topic(log)
        assert not log.refresh().broken
        send(log, b"v")
        assert values_of(log) == [b"v"]
    assert disk.changes == 3, "the file of the store, of the log, and that it has begun"


CALLS: dict[str, Callable[[kmq.Store], object]] = {
    "topics": lambda store: store.topics(),
    "describe_topic": lambda store: store.describe_topic("t"),
    "offsets": lambda store: store.offsets("t"),
    "offsets_for_time": lambda store: store.offsets_for_time("t", datetime(2000, 1, 1, tzinfo=UTC)),
    "groups": lambda store: store.groups(),
    "describe_group": lambda store: store.describe_group("g"),
    "queues": lambda store: store.queues(),
    "lag": lambda store: store.consumer(topics=["t"]).lag(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("last", [True, False])
def test_what_is_told_of_a_damaged_end_comes_with_a_warning(folder: Path, call: str, last: bool):
    """The last commit of all is damaged, or the last one of the topic `t`."""
    with kmq.open(folder) as store:
        if not last:
            store.set_group_offsets("g", {"t": {0: 0}})
        else:
            store.create_topic("other")
    with (folder / LOG).open("r+b") as log:
        contents = log.read(65_536)
        at = _frame(contents, 1 if last else 2) + 20
        log.seek(at)
        log.write(bytes([contents[at] ^ 1]))
    with kmq.open(folder) as store, pytest.warns(kmq.KmqWarning, match="are damaged") as told:
        CALLS[call](store)
    assert LOG in str(told[0].message)
    assert {each.filename for each in told} == {__file__}


def _frame(contents: bytes, from_end: int) -> int:
    """Where a frame of the file begins, counted from its end."""
    begins = [at for at in range(0, len(contents), 64) if contents[at : at + 4] == b"KMQ1"]
    return begins[-from_end]
