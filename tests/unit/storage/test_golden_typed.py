"""The golden store of typed topics stays readable, whatever version of a schema wrote a record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.data.make_golden_typed import FIRST, SECOND, make, value
from tests.support.golden import DATA, copied, golden_frames

GOLDEN = DATA / "format-1-typed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
folder = copied(GOLDEN)


def _expected(n: int) -> dict[str, object]:
    found = value(n)
    found["at"] = _EPOCH + timedelta(milliseconds=n)
    return found | ({"note": None} if n < 35 else {})


@pytest.mark.parametrize("read_only", [False, True])
def test_the_golden_records_come_back_under_the_newest_schema(folder: Path, read_only: bool):
    with kmq.open(folder, create=False, read_only=read_only) as store:
        assert store.describe_topic("sales").schema == SECOND
        with store.consumer(topics=["sales"]) as consumer:
            records = consumer.consume(1000, timeout=0)
        assert [record.value for record in records[:-1]] == [_expected(n) for n in range(37)]
        assert (records[-1].key, records[-1].value) == (b"key 37", None)
        assert [record.key for record in records[:4]] == [None, None, None, b"key 3"]
        table = store.read("sales", columns=SECOND.names).read_all()
    assert table.schema.types == SECOND.types
    assert table.column("id").to_pylist() == [*range(37), None]


def test_what_follows_is_stored_under_the_newest_version(folder: Path):
    with kmq.open(folder, create=False) as store, store.producer() as producer:
        assert producer.send("sales", {"id": 2**40}).result(10).offset == 38
        assert store.read("sales", columns=["id"]).read_all().column(0).to_pylist()[-1] == 2**40


def test_its_entries_encode_to_the_same_bytes():
    assert len(list(golden_frames(GOLDEN))) == 7


def test_its_segment_and_staged_file_are_plain_arrow_files():
    (staged,) = (GOLDEN / "staged").iterdir()
    (segment,) = GOLDEN.glob("segments/**/*.arrow")
    with pa.ipc.open_file(staged) as opened:
        assert opened.schema.names == ["_timestamp", "_key", *FIRST.names]
        assert opened.read_all().num_rows == 30
    with pa.ipc.open_file(segment) as opened:
        assert opened.schema.names[: len(FIRST) + 2] == [*FIRST.names, "_offset", "_timestamp"]
        assert opened.read_all().num_rows == 33


def test_the_script_makes_a_store_that_says_the_same(tmp_path: Path, folder: Path):
    make(tmp_path / "made")
    with kmq.open(tmp_path / "made", read_only=True) as made, kmq.open(folder) as golden:
        assert [c.time for c in made.commits()] == [c.time for c in golden.commits()]
        assert made.read("sales").read_all() == golden.read("sales").read_all()
