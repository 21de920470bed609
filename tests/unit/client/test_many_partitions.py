"""One commit with small batches of very many partitions.

Finds: a staged file, with its syncs, for each small batch that finds the commit full.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.log.disk.local_log import LocalLog
from tests.unit.client.stored import lsn

_PARTITIONS = 1_500
_VALUE = b"v" * (2 * limits.INLINE_COMMIT_BYTES_MAX // _PARTITIONS)


def _send_to_each(producer: kmq.Producer) -> None:
    rows = {"value": [_VALUE] * _PARTITIONS, "partition": list(range(_PARTITIONS))}
    producer.send_arrow("wide", pa.table(rows)).result(60)


def _send_in_transaction(producer: kmq.Producer) -> None:
    with producer.transaction() as tx:
        for number in range(_PARTITIONS):
            tx.send("wide", _VALUE, partition=number)


@pytest.mark.parametrize("send", [_send_to_each, _send_in_transaction])
def test_small_batches_of_many_partitions_are_one_commit_and_no_files(tmp_path, send):
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("wide", partitions=_PARTITIONS)
        before = lsn(store)
        send(producer)
        assert lsn(store) == before + 1
        assert not list(store.log.files.list("staged"))
        assert set(store.offsets("wide").values()) == {(0, 1)}
        assert store.verify(deep=True).ok


def test_small_batches_beyond_the_limit_of_a_commit_are_staged(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalLog, "small_room", 1024 * 1024)
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("wide", partitions=_PARTITIONS)
        _send_to_each(producer)
        inline = limits.INLINE_COMMIT_BYTES_MAX + LocalLog.small_room
        staged = len(list(store.log.files.list("staged")))
        assert 0 < staged == pytest.approx(_PARTITIONS - inline / len(_VALUE), rel=0.2)
        assert store.verify(deep=True).ok
