"""A store that producers and consumers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kmq_spark import openmessaging as oms
from tests.unit.openmessaging.received import end_all


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[oms.KeyValue]:
    """Where the store is."""
    yield oms.KeyValue().put("STORE_PATH", tmp_path / "store")
    end_all()


@pytest.fixture
def producer(settings: oms.KeyValue) -> Iterator[oms.Producer]:
    """A producer."""
    with oms.Producer(settings) as made:
        yield made
