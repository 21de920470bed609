"""The golden clone stays readable: a store of format 2, and what a bucket keeps for its clones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.identity import BucketFacts, decode_identity, encode_identity
from kmq_storage.maintenance.clones import clone_records
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden_clone import ENGINE, RECORD

GOLDEN = ENGINE.parent / "format-2-clone"

IDENTITY = b"""{
  "format": 2,
  "store_id": "00000000-0000-0000-0000-00000000004d",
  "log_file_bytes": 67108864,
  "bucket": {
    "one_writer": "",
    "conditional": true,
    "races": []
  },
  "origins": [
    "stores/first",
    "stores/source"
  ],
  "crc32c": 1121356887
}
"""


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(shutil.copytree(GOLDEN, tmp_path / "clone")) as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(shutil.copytree(ENGINE, tmp_path / "source")) as opened:
        yield opened


def test_the_golden_clone_says_what_its_source_says(clone: kmq.Store, source: kmq.Store):
    assert clone.topics() == source.topics()
    assert [g.committed for g in clone.groups()] == [g.committed for g in source.groups()]
    for topic in ("stream", "state"):
        assert clone.read(topic).read_all() == source.read(topic).read_all()
    with pytest.raises(kmq.DataLossError, match="lost in a fire"):
        clone.read("cut").read_all()
    assert clone.verify(deep=True).ok


def test_it_takes_no_writes_however_it_is_opened(clone: kmq.Store):
    with pytest.raises(kmq.IllegalStateError, match="cloned so"):
        clone.create_topic("other")


def test_its_identity_encodes_to_the_same_bytes():
    raw = (GOLDEN / "kmq.json").read_bytes()
    identity = decode_identity(raw, "golden")
    assert identity.read_only
    assert encode_identity(identity) == raw


def test_the_identity_of_a_clone_in_a_bucket_says_where_its_files_are():
    identity = decode_identity(IDENTITY, "golden")
    assert identity.origins == ("stores/first", "stores/source")
    assert identity.bucket == BucketFacts("", True, ())
    assert encode_identity(identity) == IDENTITY


def test_what_a_bucket_keeps_for_a_clone_is_read():
    ((_, record),) = clone_records(LocalDisk(GOLDEN))
    assert record == RECORD
