"""Finds a copy that differs from its source, or that is wrong after it was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.copying import copy_topics
from kmq_storage.maintenance import segments


@pytest.fixture
def source(tmp_path: Path) -> kmq.Store:
    store = kmq.open(tmp_path / "source", maintenance=False)
    store.create_topic("plain", partitions=2, retention=3600.0)
    store.create_topic("newest", cleanup="compact")
    with store.producer() as producer:
        for number in range(300):
            producer.send("plain", b"v%d" % number, key=b"k%d" % number)
            producer.send("newest", b"n%d" % number, key=b"k%d" % (number % 10))
        producer.flush()
        store.seal()
        store.compact("newest")
        store.trim("plain", {0: 20})
        for number in range(50):
            producer.send("plain", b"tail%d" % number, headers={"h": "x"})
    store.set_group_offsets("readers", {"plain": {0: 30, 1: 5}})
    return store


def _rows(store: kmq.Store, topic: str) -> list[dict[str, object]]:
    return store.read(topic).read_all().to_pylist()


def test_a_copy_has_the_same_records_at_the_same_offsets(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        report = copy_topics(source.log, target.log)
        for topic in ("plain", "newest"):
            assert _rows(target, topic) == _rows(source, topic)
            assert target.offsets(topic) == source.offsets(topic)
            assert target.describe_topic(topic) == source.describe_topic(topic)
        assert target.describe_group("readers").committed == {"plain": {0: 30, 1: 5}}
    assert (report.topics, report.rows) == (
        2,
        sum(len(_rows(source, t)) for t in ("plain", "newest")),
    )


def test_a_copy_goes_on_where_it_was_interrupted(
    source: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written = []
    original = segments.write_segment

    def fails_at_the_second(*arguments: object) -> object:
        written.append(arguments)
        if len(written) == 2:
            raise OSError("the disk went away")
        return original(*arguments)  # type: ignore[arg-type]

    with kmq.open(tmp_path / "target") as target:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="went away"):
            patch.setattr("kmq_storage.copying.write_segment", fails_at_the_second)
            copy_topics(source.log, target.log)
        with source.producer() as producer:
            producer.send("plain", b"later", partition=0)
        copy_topics(source.log, target.log)
        assert _rows(target, "plain") == _rows(source, "plain")
        assert _rows(target, "newest") == _rows(source, "newest")
        assert copy_topics(source.log, target.log).rows == 0


def test_a_copy_that_was_written_to_is_not_continued(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log, ["plain"])
        assert [topic.name for topic in target.topics()] == ["plain"]
        with target.producer() as producer:
            producer.send("plain", b"of my own", partition=1)
        with pytest.raises(kmq.InvalidRequestError, match="plain-1 in the target was written to"):
            copy_topics(source.log, target.log)


def test_another_topic_of_that_name_is_not_written_over(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        target.create_topic("plain")
        with pytest.raises(kmq.AlreadyExistsError, match="no copy of this one"):
            copy_topics(source.log, target.log)


def test_damage_in_the_source_stops_the_copy(source: kmq.Store, tmp_path: Path):
    folder = tmp_path / "source" / "segments" / source.describe_topic("plain").topic_id.hex
    file = next(folder.glob("*/*.arrow"))
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(contents)
    with (
        kmq.open(tmp_path / "target") as target,
        pytest.raises(kmq.CorruptionError, match=file.name),
    ):
        copy_topics(source.log, target.log)
