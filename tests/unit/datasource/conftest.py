"""What every test of the data source begins with."""

from __future__ import annotations

import pytest

from kmq_spark.datasource.warning import warn_once


@pytest.fixture(autouse=True)
def _warnings_anew() -> None:
    """A process says the same only once, and tests may share their words."""
    warn_once.cache_clear()
