"""The queue race at a size for a test: all its checks hold, by batches and one by one."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.races import queue_messages, queues

pytestmark = pytest.mark.e2e


def test_the_race_runs_whole_and_every_message_is_as_it_was_put(tmp_path: Path):
    options = Namespace(queues=300, messages=9_000, checks=500, processes=2)
    done = queues.run(options, str(tmp_path))
    assert [(name, count) for name, count, _ in done[:4]] == [
        ("put", 9_000),
        ("sort", 9_000),
        ("check", 500),
        ("read", 900),
    ]
    assert "| kmq, one by one |" in queues.table(done)


def test_messages_of_the_race_are_those_of_their_queue_and_index():
    of_queues, indexes = np.array([1, 1, 2, 49_999]), np.array([0, 1, 0, 3])
    found = queue_messages.messages(of_queues, indexes).to_pylist()
    assert len(set(found)) == 4
    assert {len(message) for message in found} == {queue_messages.SMALL}
    assert queue_messages.messages(of_queues[1:2], indexes[1:2])[0].as_py() == found[1]
    (large,) = queue_messages.messages(np.array([50_000]), np.array([0])).to_pylist()
    assert len(large) == queue_messages.LARGE
