"""What a handle is about to commit, told to the oracle before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.format.layout_entries import TrimEntry
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.framing import Stamp
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import queue_of_log
from tests.simulation.oracle import Oracle, Part, Record


def is_apart(topic: str) -> bool:
    """Whether a topic is a queue's, or one of dead letters: others check those."""
    return queue_of_log(topic) is not None or topic.startswith("%DLQ%")


class Watch:
    """Stands beside one handle; clocks of two processes differ by at most `skew` seconds."""

    def __init__(self, oracle: Oracle, skew: float, *, clocks_jump: bool) -> None:
        self._oracle = oracle
        self._skew = skew
        self._clocks_jump = clocks_jump
        self._by_hand = False
        #: What the units of the next append are made of.
        self.sending: Mapping[Part, list[Record]] = {}

    @contextmanager
    def trimming_by_hand(self) -> Iterator[None]:
        """Trims of the block are not those of a retention time."""
        self._by_hand = True
        try:
            yield
        finally:
            self._by_hand = False

    def tell(self, state: StoreState, entries: Sequence[Entry]) -> None:
        """These entries are about to be written behind this state."""
        spans: dict[Part, tuple[int, list[Record]]] = {}
        rows: Counter[Part] = Counter()
        for entry in entries:
            if not isinstance(entry, RecordsEntry | TrimEntry):
                continue
            part = _part(state, entry)
            if is_apart(part[0]):
                continue
            if isinstance(entry, RecordsEntry):
                spans.setdefault(part, (entry.base_offset, self.sending[part]))
                rows[part] += entry.rows
            else:
                self._expect(state, entry)
        if spans:
            sent = {part: len(mine) for part, mine in self.sending.items()}
            assert rows == sent, "a part of what was sent"
            self._oracle.write(spans)

    def tell_next(self, after: Cursor, stamp: Stamp, entries: Sequence[Entry]) -> None:
        """The same, when it is known behind which commit, and what stands in its header."""

    def _expect(self, state: StoreState, entry: TrimEntry) -> None:
        part = _part(state, entry)
        topic = state.topic(part[0])
        start = topic.partition(part[1]).start
        if not self._by_hand:
            retention = topic.settings.retention
            assert retention is not None, "no retention, no trim"
            if not self._clocks_jump:  # else records may be dated as old when they are made
                self._oracle.check_expired(part, (start, entry.start), retention - self._skew)
        self._oracle.trims[part] = max(self._oracle.trims[part], entry.start)


def _part(state: StoreState, entry: RecordsEntry | TrimEntry) -> Part:
    topic = state.topic_by_id(entry.topic_id)
    assert topic is not None
    return topic.name, entry.partition
