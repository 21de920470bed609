"""A store with something of everything, and what listens for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kmq_spark.server.listening import Listener
from tests.unit.server.made import listening, make_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with something of everything."""
    made = str(tmp_path / "shop")
    make_store(made)
    return made


@pytest.fixture
def served(url: str) -> Iterator[Listener]:
    """What listens for it."""
    with listening(url) as listener:
        yield listener
