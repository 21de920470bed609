"""An archiving job that is interrupted while it waits for its query."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from kmq_spark import archive
from kmq_spark.archive import job


class _Query:
    """A query that runs until it is stopped, and a Ctrl-C while somebody waits for its end."""

    stopped = False

    def awaitTermination(self) -> None:
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped = True


def test_a_job_that_is_interrupted_leaves_no_query_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = _Query()
    monkeypatch.setattr(job, "start", lambda *_given, **_options: query)
    with pytest.raises(KeyboardInterrupt):
        archive.run(cast("SparkSession", None), tmp_path / "shop", tmp_path / "lake")
    assert query.stopped
