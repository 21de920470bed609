"""Slips that look like leftovers, as the machine slept for days, though their receivers live.

Finds: a record whose `ack` returned, and that comes again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kmq_spark.client.queues import ahead
from kmq_storage import paths
from tests.support.clock import Clock
from tests.support.storage import collect_all
from tests.unit.queues.test_slips import FAST, RECORDS, filled, opened

_MONTH = 30 * 86_400


def test_what_was_acknowledged_never_comes_again_though_its_slip_was_taken_for_a_leftover(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)
    url = str(tmp_path / "store")
    with opened(url, clock) as store, opened(url, clock) as other_store:
        other = filled(store, other_store)
        receiver, acked = store.queue("q"), []
        for turn in range(2):
            for _ in range(FAST):
                (held,) = receiver.receive()
                held.ack()
                acked.append(int(held.value))
            if turn == 0:
                receiver._ahead.settle()  # as when it has nothing to do for a while
                (slip,) = (tmp_path / "store" / paths.SLIP_FOLDER).iterdir()
                os.utime(slip, (slip.stat().st_mtime - _MONTH,) * 2)
                collect_all(other_store.log, _MONTH / 2)
        clock.pass_seconds(3_601)  # as if the receiver had been killed
        left = [int(each.value) for each in other.receive(RECORDS)]
        assert not set(left) & set(acked)
        assert other.stats().acked == len(acked)
