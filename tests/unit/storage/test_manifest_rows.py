"""Rows of a manifest page.

Finds: pyarrow's slices for each partition, which took most of the time where each has one row.
"""

from __future__ import annotations

from dataclasses import replace

from kmq_storage.format.manifest import SEGMENT, Row, decode_page, encode_page

_ROW = Row(
    5, 9, 4, SEGMENT, bytes(15) + b"f", 1, 2, 2**32 - 1, 2**16 - 1, -(2**63), 2**63 - 1, 3, 4
)


def test_rows_of_many_partitions_are_taken_from_a_page_without_arrow_each_time():
    rows = [((b"t" * 16, number), replace(_ROW, file=bytes([number]) * 16)) for number in range(9)]
    page = decode_page(*encode_page(rows, bytes(16)))
    assert page.row(0) == rows[0][1]
    spans = dict(page.spans)
    del page.batch  # whoever looks there again fails
    assert [(key, *page.rows(*span)) for key, span in spans.items()] == rows
    assert {type(value) for value in (page.row(3).file, page.row(3).rows)} == {bytes, int}
