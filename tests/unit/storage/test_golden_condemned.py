"""The golden store of condemned files says for ever which files came too late."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.checkpoints.checkpoint import newest_checkpoint
from kmq_storage.log.staging import PartitionRecords, Stager
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import ORDERS
from tests.data.make_golden_condemned import CONDEMNED, RECORDS, make
from tests.data.making import rows
from tests.support.golden import DATA, in_each_kind

GOLDEN = DATA / "format-1-condemned"
folder = in_each_kind(GOLDEN, make)


def test_the_golden_store_has_its_records_and_refuses_what_it_gave_up(folder: Path) -> None:
    with kmq.open(folder) as store:
        assert store.read("orders").read_all().column("value").to_pylist() == [
            f"value {n}".encode() if n % 5 else None for n in range(RECORDS)
        ]
        assert store.log.refresh().condemned == CONDEMNED[-1]
        slept = new_file_id(uuid.UUID(int=1), CONDEMNED[-1] - 1)
        late = Stager(store.log.files, lambda: slept, sync=True)
        staged = late.stage(PartitionRecords("orders", ORDERS, 0, (rows(0, 1, 0),)))
        with pytest.raises(kmq.ConflictError, match="given up"):
            store.log.commit([Unit(staged)])
        assert store.verify(deep=True).ok


def test_its_checkpoint_says_the_first_of_them() -> None:
    found = newest_checkpoint(LocalDisk(GOLDEN))
    assert found is not None
    assert found.members["condemned"] == CONDEMNED[0]
