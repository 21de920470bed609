"""The directory of a run: which of its blocks are looked into for the queues that are asked for.

Finds: a block that is not there, one that is left out, and a table without queues that fails.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.format import queue_directory
from kmq_storage.format.queue_directory import Directory, DirectoryEncoder
from kmq_storage.format.queue_table import Beginnings, QueueTable


def _table(names: list[bytes]) -> QueueTable:
    """A message for each of these queues."""
    return QueueTable(pa.array(names, pa.binary()), np.arange(len(names) + 1))


def _directory(names: list[bytes]) -> Directory:
    encoder = DirectoryEncoder([_table(names)] if names else [], Beginnings.none)
    *_, listed = encoder.messages(0)
    return Directory(listed, encoder.lists[0], "run", len(names))


@pytest.mark.parametrize(
    ("asked", "blocks"),
    [
        ([], []),
        ([b"a"], []),
        ([b"a", b"b", b"c", b"d", b"z"], [(0, 1, 3), (1, 3, 4), (2, 4, 5)]),
        ([b"d"], [(1, 0, 1)]),
        ([b"g", b"z"], [(2, 0, 2)]),
    ],
)
def test_names_are_looked_up_in_the_blocks_that_may_have_them(
    monkeypatch: pytest.MonkeyPatch, asked: list[bytes], blocks: list[tuple[int, int, int]]
):
    monkeypatch.setattr(queue_directory, "_BLOCK_QUEUES", 2)
    found = _directory([b"b", b"c", b"d", b"e", b"f"]).blocks_of(pa.array(asked, pa.binary()))
    assert list(found) == blocks


def test_a_directory_without_queues_has_no_block_of_any_name():
    assert list(_directory([]).blocks_of(pa.array([b"a", b"b"], pa.binary()))) == []


def test_a_table_without_queues_has_no_rows_of_any_name():
    assert _table([]).rows_of(b"a") == (0, 0)
