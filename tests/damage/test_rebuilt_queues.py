"""Queues' own logs in stores that are made again from an older checkpoint and segments."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import PLAIN
from tests.damage.test_rebuilt import _leave_log_behind


def _send(store: kmq.Store, values: range) -> None:
    with store.producer() as producer:
        for n in values:
            delay = None if n % 30 else timedelta(days=365)
            producer.send_to_queue("q", b"%d" % n, delay=delay)
    store.seal()


def test_finished_records_that_maintenance_dropped_are_no_loss(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_queue("q")
        store.checkpoint()
        older = {path: path.read_bytes() for path in tmp_path.glob("[cp]*/*") if path.is_file()}
        _send(store, range(20))
        _send(store, range(20, 60))
        queue = store.queue("q")
        queue.ack(queue.receive(58))
        assert tidy(store.log, manner=PLAIN)[1].dropped == 58
        store.checkpoint()
        store.collect(grace=0)
        _leave_log_behind(store)
        with store.producer() as producer:
            producer.send_to_queue("q", b"in the log").result()
    for path in [*tmp_path.glob("checkpoints/*"), *tmp_path.glob("pages/*")]:
        path.unlink()
    for path, contents in older.items():
        path.write_bytes(contents)
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path, maintenance=False) as store:
        queue, found = store.queue("q"), list[bytes]()
        while held := queue.receive(100):  # DataLossError for what was lost
            found += [each.value for each in held]
        assert found == [b"0", b"30", b"in the log"]  # the delays of later records are lost, too
        assert store.verify(deep=True).ok
