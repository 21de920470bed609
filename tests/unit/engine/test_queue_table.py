"""The rows of queues stand in the order of names, and those of a queue in their own.

Finds: rows of one queue that change places, a name that is told twice, and pieces that are taken
for each other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kmq_storage.format.queue_table import different, grouped

_NAMES = (b"", b"a", b"a\x00", b"b" * 300, b"queue 1", b"queue 10", b"queue 2", b"\xff")


def test_rows_are_grouped_by_name_in_their_order():
    rng = np.random.default_rng(5)
    names = [_NAMES[place] for place in rng.integers(0, len(_NAMES), 70_000)]
    pieces = pa.array(names, pa.binary())
    table, order = grouped(pa.chunked_array([pieces.slice(0, 9), pieces.slice(9)]))
    assert order.tolist() == sorted(range(len(names)), key=lambda row: (names[row], row))
    assert table.names.to_pylist() == sorted(_NAMES)
    counts = [names.count(name) for name in sorted(_NAMES)]
    assert table.starts.tolist() == [0, *np.cumsum(counts).tolist()]


def test_pieces_with_the_names_of_others_are_grouped_like_these():
    first, other = [b"b", b"c", b"a"], [b"b", b"d", b"a"]
    pieces = [first, other, [], first, other, other, [b"e"], [b"e", *first]]
    names = [name for piece in pieces for name in piece]
    arrays = [pa.array(piece, pa.binary()) for piece in pieces]
    table, order = grouped(pa.chunked_array([*arrays[:-1], arrays[-1].slice(1)]))
    del names[-4]
    assert order.tolist() == sorted(range(len(names)), key=lambda row: (names[row], row))
    assert table.names.to_pylist() == [b"a", b"b", b"c", b"d", b"e"]
    assert np.diff(table.starts).tolist() == [names.count(name) for name in sorted(set(names))]


def test_pieces_with_the_names_of_others_are_not_looked_up_again():
    names = pa.array([b"a", b"b"], pa.binary())
    others = pa.array([b"a", b"a", b"b"], pa.binary())
    pieces = [names, others, others.slice(1), names.slice(0, 0), others]
    assert different(pieces) == ([names, others], [0, 1, 0, 1])
