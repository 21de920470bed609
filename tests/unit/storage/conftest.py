"""A store that others are copied to, and a log on a disk that can be told to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.log.commit_log import CommitLog
from tests.support.failing_disk import FailingDisk
from tests.support.storage import make_topic, open_log, send


@pytest.fixture
def target(tmp_path: Path) -> Iterator[kmq.Store]:
    """An empty store in a folder, without maintenance of its own."""
    with kmq.open(tmp_path / "target", maintenance=False) as store:
        yield store


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    """An empty folder on a disk that can be told to fail."""
    return FailingDisk(tmp_path / "store")


@pytest.fixture
def log(disk: FailingDisk) -> Iterator[CommitLog]:
    """A log there, with topic `t` and a record."""
    with closing(open_log(disk)) as log:
        make_topic(log)
        send(log, b"first")
        yield log
