"""The golden store of keyed queues has the same messages at the same indexes for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.data.make_golden_keyed import make
from tests.support.golden import KINDS, placed

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "format-1-keyed"


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return placed(request.param, GOLDEN, make, tmp_path / "store")


def test_the_golden_queues_have_their_messages(folder: Path) -> None:
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        # Every fifth record of the golden stores has no value, and every second one no key.
        numbers = [n for n in range(20) if n % 2 and n % 5]
        assert queues.names() == sorted(f"key {n}" for n in numbers)
        for n in numbers:
            times = 2 if n < 10 else 1
            assert queues.get(f"key {n}", 0, 9) == [b"value %d" % n] * times
        assert queues.put("key 1", b"more").result() == 2
        assert store.verify(deep=True).ok
