"""Finds a copy of a typed topic that is read by another schema than its source."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics

SCHEMA = pa.schema([pa.field("a", pa.int32(), nullable=False)])


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("tombstone", [True, False])
def test_columns_that_tombstones_leave_empty_may_be_null_in_a_copy_as_in_its_source(
    tmp_path: Path, cleanup: str, tombstone: bool
):
    with kmq.open(tmp_path / "source", maintenance=False) as source, source.producer() as producer:
        source.create_topic("t", schema=SCHEMA, cleanup=cleanup)
        producer.send("t", {"a": 1}, key="k")
        if tombstone:
            producer.send("t", None, key="k")
        producer.flush()
        expected = source.read("t").read_all()
        with kmq.open(tmp_path / "target", maintenance=False) as target:
            copy_topics(source.log, target.log)
            assert target.read("t").read_all().equals(expected)
            assert target.read("t").schema == expected.schema
            target.checkpoint()
    with kmq.open(tmp_path / "target") as target:
        assert target.read("t").schema.field("a").nullable is tombstone
        assert target.read("t").schema == expected.schema


def test_a_copy_waits_for_no_tombstones_where_its_source_has_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kmq_storage.limits.TOMBSTONE_DELAY", -10.0)
    with (
        kmq.open(tmp_path / "source", maintenance=False) as source,
        kmq.open(tmp_path / "target", maintenance=False) as target,
        source.producer() as producer,
    ):
        source.create_topic("t", schema=SCHEMA, cleanup="compact")
        producer.send("t", None, key="k").result()
        source.seal()
        copy_topics(source.log, target.log)
        for store in (source, target):
            store.compact("t")
        producer.send("t", {"a": 1}, key="z").result()
        source.seal()
        copy_topics(source.log, target.log)
        assert target.log.state.topic("t").partition(0).tombstones == 0
