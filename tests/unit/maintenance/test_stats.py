"""What `stats` tells of a store, beside what its folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage import limits

VALUE = bytes(1000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    """One record of each of two keys, of ten that were there, in a segment; some in the log."""
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", cleanup="compact")
        for _ in range(5):
            producer.send_batch("t", [VALUE] * 2, [b"one", b"other"]).result()
            store.seal()
        store.compact("t")
        store.checkpoint()
        producer.send_batch("t", [VALUE] * 2000, [b"%d" % n for n in range(2000)]).result()
        yield store


def test_files_and_bytes_of_each_kind_are_those_of_the_folder(store: kmq.Store, tmp_path: Path):
    stats = store.stats()
    for kind in ("staged", "segments", "checkpoints", "pages"):
        found = [path for path in (tmp_path / "s" / kind).rglob("*") if path.is_file()]
        assert found
        expected = len(found), sum(path.stat().st_size for path in found)
        assert (stats.files[kind], stats.bytes[kind]) == expected


@pytest.mark.parametrize("url", ["{}/own", "memory://log-of-stats"])
def test_of_log_files_only_the_bytes_that_they_take_are_counted(tmp_path: Path, url: str):
    with kmq.open(url.format(tmp_path)) as store, store.producer() as producer:
        store.create_topic("t")
        producer.send("t", VALUE).result()
        log = store.stats().bytes["log"]
    assert len(VALUE) < log < limits.LOG_FILE_BYTES // 8
    facts = [path.stat() for path in (tmp_path / "own").glob("log/*") if path.is_file()]
    assert not facts or log == sum(min(each.st_blocks * 512, each.st_size) for each in facts)


def test_what_compaction_replaced_is_garbage_until_it_is_collected(store: kmq.Store):
    before = store.stats()
    assert (before.files["segments"], before.garbage_files, before.small_segments) == (6, 5, 1)
    assert store.collect(grace=0).files >= 5
    after = store.stats()
    assert (after.files["segments"], after.garbage_files, after.garbage_bytes) == (1, 0, 0)
    assert before.bytes["segments"] - after.bytes["segments"] == before.garbage_bytes


@pytest.mark.parametrize("call", ["compact", "trim", "delete_topic"])
def test_what_a_checkpoint_still_names_is_garbage_once_nothing_reads_it(tmp_path: Path, call: str):
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        for topic in ("t", "other"):
            store.create_topic(topic)
            for _ in range(3):
                producer.send_batch(topic, [VALUE] * 100).result()
                store.seal()
        store.checkpoint()
        assert store.stats().garbage_files == 0
        getattr(store, call)("t", *([{0: 200}] if call == "trim" else []))
        assert store.stats().garbage_files == (2 if call == "trim" else 3)
        rows = store.read("other").read_all().num_rows
        garbage = store.stats().garbage_files
        store.checkpoint()
        assert store.stats().garbage_files >= garbage
        assert store.collect(grace=0).files >= garbage
        assert store.read("other").read_all().num_rows == rows == 300


def test_write_amplification_counts_each_time_that_a_record_was_written(tmp_path: Path):
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        assert store.stats().write_amplification == 1.0
        producer.send_batch("t", [VALUE] * 5000).result()
        assert store.stats().write_amplification == 1.0
        store.seal()
        assert store.stats().write_amplification == pytest.approx(2.0, abs=0.02)


def test_records_that_were_copied_into_a_store_were_written_once(tmp_path: Path):
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        producer.send_batch("t", [VALUE] * 5000).result()
    assert main(["copy", str(tmp_path / "s"), str(tmp_path / "c")]) == 0
    with kmq.open(tmp_path / "c", maintenance=False) as copied:
        assert copied.stats().write_amplification == 1.0
        with copied.producer() as producer:
            producer.send("t", VALUE).result()
        assert copied.stats().write_amplification == 1.0


def test_the_command_tells_the_same(store: kmq.Store, capsys: pytest.CaptureFixture[str]):
    assert main(["--store", store.url, "--json", "stats"]) == 0
    told, stats = json.loads(capsys.readouterr().out), store.stats()
    assert (told["bytes"], told["files"]) == (stats.bytes, stats.files)
    assert told["garbage_bytes"] == stats.garbage_bytes
    assert main(["--store", store.url, "stats"]) == 0
    assert f"{stats.garbage_files} files of {stats.garbage_bytes} bytes" in capsys.readouterr().out
