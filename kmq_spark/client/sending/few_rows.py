"""A few plain rows on their way into a commit, without Arrow arrays.

What a caller sends one by one and waits for is committed one by one; the way that is made for
thousands of rows costs ten times as much then. Records and places are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from kmq_spark.client.encoding.storable import one_is_unstorable, why_one_is_unstorable
from kmq_spark.client.sending.row_work import RowWork
from kmq_spark.client.sending.sends import RowSends, Sends
from kmq_spark.client.sending.work import Means, OldStateError
from kmq_spark.client.typed.rows import no_columns
from kmq_spark.errors import KmqError
from kmq_storage.format.entries import Entry
from kmq_storage.format.few_rows import encode_rows
from kmq_storage.format.records import EncodedBatch
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.staging import inline_entry
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic

#: With keys, each of which has to be hashed, Arrow's way is sooner the faster one.
_ROWS, _KEYED_ROWS = 128, 8
#: Of a message; waiting rows count with more bytes each than they take in it.
_BYTES, _MORE_BYTES = 16_384, 48


class FewRows:
    """The rows of one send that `are_few`."""

    def __init__(self, sends: RowSends) -> None:
        self.topic = sends.topic
        self._sends = sends
        #: The rows of each partition, without those that can't be stored.
        self._rows: dict[int, Sequence[int]] = {}
        self._bases: dict[int, int] = {}
        #: The partition and the offset of each row, once they are asked for.
        self._places: dict[int, tuple[int, int]] = {}
        self.topic_id = b""

    def unit(self, state: StoreState, means: Means, room: int) -> Unit:
        """Return the rows as entries of a commit; empty when none can be stored."""
        topic = state.topic(self.topic)
        self.topic_id = topic.id
        if topic.settings.schemas:
            raise no_columns(topic.name)
        self._rows = self._routed(topic, means)
        batches = [self._batch(rows) for rows in self._rows.values()]
        entries = [
            inline_entry(topic.id, partition, batch)
            for partition, batch in zip(self._rows, batches, strict=True)
        ]
        return Unit(tuple(entries), tuple(batch.message for batch in batches))

    def _routed(self, topic: Topic, means: Means) -> dict[int, Sequence[int]]:
        sends, router = self._sends, means.router
        sticky = router.sticky(topic) if sends.keys[0] is None else None
        if sticky is not None:
            largest = max(map(len, sends.values))
            if not one_is_unstorable(topic, largest, sticky, None):  # most often
                return {sticky: range(len(sends))}
        found: dict[int, list[int]] = {}
        for row, (key, value) in enumerate(zip(sends.keys, sends.values, strict=True)):
            size = len(value or b"") + len(key or b"")
            partition = router.by_key(topic, key) if sticky is None else sticky
            if one_is_unstorable(topic, size, partition, key):
                if not means.refuses:
                    raise OldStateError
                sends.fail_rows([row], why_one_is_unstorable(topic, size, partition, key))
            else:
                found.setdefault(partition, []).append(row)
        return {**found}

    def _batch(self, rows: Sequence[int]) -> EncodedBatch:
        sends = self._sends
        keys = None if sends.keys[0] is None else [sends.keys[row] or b"" for row in rows]
        times = [sends.times[row] // 1000 for row in rows]
        return encode_rows(times, keys, [sends.values[row] or b"" for row in rows])

    def refuse(self, error: KmqError) -> list[RowWork]:
        """Return what is left to try after a refusal: the rows as `RowWork`."""
        return RowWork([self._sends]).refuse(error)

    def fail(self, error: KmqError) -> None:
        """Fail all sends: nothing of them can be stored."""
        self._sends.failure = self._sends.failure or error

    def let_go(self) -> None:
        """Nothing goes into files this way."""

    def committed(
        self, first_offsets: dict[int, int], entries: Sequence[Entry] | None = None
    ) -> None:
        """Note the first offset that the rows got in each partition; empty: unknown."""
        self._bases = first_offsets
        self._sends.placed(self, 0)

    def duplicates(self, first: int, end: int) -> Iterable[bool]:
        """Tell of each row that it is no duplicate: none has a `uniq`."""
        return repeat(False, end - first)

    def times(self, first: int, sent: list[int]) -> list[int]:
        """The timestamps of rows from `first` on: as they were sent."""
        return sent

    def places(self, first: int, end: int) -> tuple[list[int], list[int]]:
        """Partitions and offsets of the rows from `first` up to `end`; -1 for those that failed."""
        found = self._places = self._places or self._resolved()
        places = [found.get(row, (-1, -1)) for row in range(first, end)]
        return [partition for partition, _ in places], [offset for _, offset in places]

    def _resolved(self) -> dict[int, tuple[int, int]]:
        known = bool(self._bases)
        return {
            row: (partition, self._bases[partition] + rank if known else -1)
            for partition, rows in self._rows.items()
            for rank, row in enumerate(rows)
        }


def are_few(sends: Sends) -> bool:
    """Whether sends are a few plain rows: bytes, with keys or without, and nothing else."""
    return (
        type(sends) is RowSends
        and len(sends) <= _ROWS
        and sends.size - _MORE_BYTES * len(sends) <= _BYTES
        and not (sends.extras or sends.row_errors)
        and {*map(type, sends.values)} == {bytes}
        and (
            (missing := sends.keys.count(None)) == len(sends)
            or (not missing and len(sends) <= _KEYED_ROWS)
        )
    )
