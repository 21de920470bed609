"""The demo of Kmq's version 2, with who types.

Finds: a demo that ends with an error for who types nothing but its end.
"""

from __future__ import annotations

import io

from kmq_spark.demo import orders


class _Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_who_types_only_the_end_sees_every_order_and_the_pair_that_is_aborted():
    report = orders.main("memory://typed-orders", keys=_Typed("q\n"), out=io.StringIO())
    assert (report.sent, report.received, report.pairs, report.aborted) == (1_000, 1_000, 0, 1)
    assert report.in_order
