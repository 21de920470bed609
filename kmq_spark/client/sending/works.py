"""Which way sends go into a commit."""

from __future__ import annotations

from collections.abc import Sequence

from kmq_spark.client.sending.arrow_work import ArrowWork
from kmq_spark.client.sending.few_rows import FewRows, are_few
from kmq_spark.client.sending.row_work import RowWork
from kmq_spark.client.sending.sends import ArrowSend, RowSends, Sends
from kmq_spark.client.sending.work import Work

#: Memory of this size is still warm when the next work uses it again.
_WORK_BYTES = 4 * 1024 * 1024


def work_of(waiting: Sequence[Sends], *, by_hash: bool) -> Sequence[Work]:
    """Sends as work, in their order per topic; a few plain rows are `FewRows`.

    These are partitioned by the hashes of their keys only, so `by_hash` must hold.
    """
    if by_hash and all(map(are_few, waiting)):
        rows = [send for send in waiting if isinstance(send, RowSends)]
        if len({send.topic for send in rows}) == len(waiting):
            return [FewRows(send) for send in rows]
    return work_of_many(waiting)


def work_of_many(waiting: Sequence[Sends], most: int = _WORK_BYTES) -> Sequence[Work]:
    """Sends as work, in their order per topic; row sends go together up to `most` bytes."""
    work: list[Work] = []
    gathering: dict[str, list[RowSends]] = {}
    for send in filter(len, waiting):  # a signal may have come before the first row
        rows = gathering.setdefault(send.topic, [])
        if isinstance(send, RowSends):
            rows.append(send)
        if rows and (send is not rows[-1] or sum(each.size for each in rows) > most):
            work.append(RowWork(gathering.pop(send.topic)))
        if isinstance(send, ArrowSend):
            work.append(send.work or ArrowWork(send))
    return work + [RowWork(rows) for rows in gathering.values() if rows]
