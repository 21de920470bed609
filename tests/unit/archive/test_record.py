"""What the record of an archive says, whichever kmq wrote it."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kmq_spark.lake.columns import check_columns
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, PARQUET, ArchiveRecord, ArchiveRecords
from kmq_storage.errors import InvalidRequestError

_TOPIC = uuid.UUID(int=7)
_RECORD = ArchiveRecord(
    store_id="s",
    format=DELTA,
    group="g",
    checkpoint="c",
    topics=("orders",),
    typed=False,
    starts={_TOPIC.hex: {1: 10}},
)


def test_holes_are_kept_joined_and_without_what_is_before_the_archive(tmp_path: Path):
    holed = _RECORD
    for partition, hole in ((1, (5, 12)), (1, (20, 25)), (1, (12, 15)), (0, (3, 3)), (1, (2, 4))):
        holed = holed.with_hole(_TOPIC, partition, hole)
    records = ArchiveRecords(ArchivePlace(str(tmp_path)))
    records.add(holed)
    known = records.newest()
    assert known == holed
    assert known.lost(_TOPIC, 1, 0, 100) == [(10, 15), (20, 25)]
    assert known.lost(_TOPIC, 1, 14, 22) == [(14, 15), (20, 22)]
    assert known.lost(_TOPIC, 0, 0, 100) == known.lost(uuid.UUID(int=8), 1, 0, 100) == []


def test_only_what_older_kmqs_would_misread_is_unknown_to_them(tmp_path: Path):
    records, holed = (
        ArchiveRecords(ArchivePlace(str(tmp_path))),
        _RECORD.with_hole(_TOPIC, 0, (1, 2)),
    )
    for version, record in enumerate((_RECORD, holed, replace(holed, folders="kmq_")), 1):
        records.add(record)
        body = json.loads((tmp_path / "_kmq" / f"record-{version:08d}.json").read_text())
        assert body["version"] == version
        assert ("holes" in body, "folders" in body) == (version >= 2, version == 3)
        assert records.newest() == record


def test_what_a_record_of_the_first_version_says_is_understood(tmp_path: Path):
    body = {
        "version": 1,
        "store_id": "s",
        "format": "delta",
        "group": "g",
        "checkpoint": "c",
        "topics": ["orders"],
        "typed": False,
        "starts": {_TOPIC.hex: {"1": 10}},
    }
    (tmp_path / "_kmq").mkdir()
    (tmp_path / "_kmq" / "record-00000001.json").write_text(json.dumps(body))
    assert ArchiveRecords(ArchivePlace(str(tmp_path))).newest() == replace(_RECORD)


@pytest.mark.parametrize("name", ["a,b", "a b", "a=b", "a\tb"])
def test_names_that_delta_refuses_are_refused_before_the_job_begins(name: str):
    columns = [pa.field(each, pa.int64()) for each in ("offset", name)]
    check_columns(columns, PARQUET)
    check_columns([pa.field(each, pa.int64()) for each in ("a.b", "a`b", 'a"b')], DELTA)
    with pytest.raises(InvalidRequestError, match="archive into Parquet"):
        check_columns(columns, DELTA)
