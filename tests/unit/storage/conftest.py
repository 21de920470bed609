"""A store that others are copied to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq


@pytest.fixture
def target(tmp_path: Path) -> Iterator[kmq.Store]:
    """An empty store in a folder, without maintenance of its own."""
    with kmq.open(tmp_path / "target", maintenance=False) as store:
        yield store
