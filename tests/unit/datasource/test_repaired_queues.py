"""Spark's tasks read a keyed topic of which a repair gave messages up.

Finds: a run that is read once for each range between gaps, of which there may be thousands, and
messages around gaps that are missing or come twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.errors import DataLossError
from kmq_storage import limits
from kmq_storage.log.reading.run_index import RunIndex

QUEUES, MESSAGES, BATCH_ROWS = 20, 30, 25
NAMES = [b"queue %02d" % n for n in range(QUEUES)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose run lost a batch, with some messages behind it."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for number in range(MESSAGES):
            queues.put_batch(NAMES, [b"<%d in %s>" % (number, name) for name in NAMES])
        store.seal()
        store.checkpoint()
        queues.put_batch(NAMES, [b"last"] * QUEUES)
    (file,) = (tmp_path / "store").glob("segments/*/0/*.arrow")
    file.write_bytes(file.read_bytes().replace(b"<11 in queue 07>", b"?11 in queue 07>"))
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
    return tmp_path / "store"


def _read(folder: Path, **options: str) -> list[tuple[bytes, int, bytes]]:
    source = KmqDataSource({"path": str(folder), "subscribe": "inbox", **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, KmqBatchReader)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    columns = ("queue", "index", "value")
    return [
        message
        for batch in batches
        for message in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
    ]


def test_each_message_between_gaps_comes_once_and_the_run_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    read = list[int]()
    stored = RunIndex._stored
    monkeypatch.setattr(RunIndex, "_stored", lambda *asked: read.append(1) or stored(*asked))
    found = _read(folder, failOnDataLoss="false")
    assert len(read) <= QUEUES * MESSAGES // BATCH_ROWS + 1
    with kmq.open(folder, read_only=True) as store:
        everything = store.keyed_queues("inbox").get_many
        with pytest.raises(kmq.DataLossError):
            everything(NAMES, 0, 999)
        whole = everything(NAMES, 0, 999)
    columns = (whole.column(name).to_pylist() for name in ("queue", "index", "value"))
    assert sorted(found) == sorted(zip(*columns, strict=True))
    assert len(found) == QUEUES * (MESSAGES + 1) - BATCH_ROWS


def test_a_gap_still_fails_a_read_that_is_to_have_all(folder: Path):
    with pytest.raises(DataLossError, match="were lost"):
        _read(folder)
