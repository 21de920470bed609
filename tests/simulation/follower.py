"""One reader: reads what is new in each state, and checks it against what was promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from tests.simulation.oracle import Oracle, Part
from tests.simulation.watch import is_apart

_BATCH_ROWS = 7


class Follower:
    """Reads through one handle; `durable` ones see only what must stay."""

    def __init__(self, oracle: Oracle, log: CommitLog) -> None:
        self._oracle = oracle
        self._log = log
        self._reader = ChunkReader(log.files)
        self._next: dict[Part, int] = defaultdict(int)
        self.seen: dict[Part, dict[int, int]] = defaultdict(dict)
        #: The highest start and group offset that was seen.
        self.starts: dict[Part, int] = defaultdict(int)
        self._groups: dict[tuple[str, Part], int] = defaultdict(int)
        self.lsn = 0

    def follow(self, state: StoreState, *, again: bool = False) -> None:
        """Check a state against what was seen before: a longer prefix of the same log.

        With `again` everything is read once more, not only what is new.
        """
        damage = state.broken or (state.damage[-1] if state.damage else None)
        if damage is not None:
            raise CorruptionError(f"damage in a healthy store: {damage}", file=damage.file)
        assert state.lsn >= self.lsn or not self._log.durable, "a durable reader never goes back"
        self.lsn = state.lsn
        bounds = {
            (topic.name, number): (topic, part.start, part.end)
            for topic in state.topics.values()
            if not is_apart(topic.name)
            for number, part in enumerate(topic.parts)
        }
        self._check_groups(state)
        ends = {part: end for part, (_, _, end) in bounds.items()}
        for part, (topic, start, end) in bounds.items():
            self._check_start(part, start)
            begin = max(start, 0 if again else self._next[part])
            self._follow_partition(topic, part, (begin, end), ends)

    def _check_start(self, part: Part, start: int) -> None:
        self._oracle.check_start(part, start, durable=self._log.durable)
        if self._log.durable:
            assert start >= self.starts[part], f"{part} started at {self.starts[part]}, now {start}"
            self.starts[part] = start

    def _follow_partition(
        self, topic: Topic, part: Part, span: tuple[int, int], ends: Mapping[Part, int]
    ) -> None:
        start, end = span
        found: dict[int, int] = {}
        position = start
        try:
            for piece in scan(
                self._log, self._reader, topic, part[1], (start, end), batch_rows=_BATCH_ROWS
            ):
                assert piece.end > position or not piece.batch.num_rows, "reading goes on"
                self._take(part, piece, found)
                position = piece.end
        except OffsetOutOfRangeError as error:
            self._oracle.check_start(part, error.context["start"], durable=False)
            end = position
            lost = not self._log.durable and position > error.context["end"]
            if position >= error.context["start"] and not lost:
                raise
        if not self._log.durable:  # a failed sync may have lost what is not on disk meanwhile
            now = self._log.state.find_topic(part[0])
            end = min(end, now.partition(part[1]).end if now else 0)
            found = {offset: found[offset] for offset in found if offset < end}
        assert all(start <= offset < end for offset in found), "only what was asked for"
        self._oracle.check_missing(part, (start, end), found)
        for offset, identity in found.items():
            self._oracle.check_whole((*part, offset), identity, ends)
        self.seen[part].update(found)
        self._next[part] = max(end, self._next[part])

    def _take(self, part: Part, piece: Slice, found: dict[int, int]) -> None:
        batch = piece.batch
        nothing = [None] * batch.num_rows
        keys = batch.column("key").to_pylist() if "key" in batch.schema.names else nothing
        values = batch.column("value").to_pylist()
        identities = batch.column("timestamp").cast("int64").to_pylist()
        offsets = piece.offsets().tolist() if batch.num_rows else []
        for offset, identity, key, value in zip(offsets, identities, keys, values, strict=True):
            assert offset > max(found, default=-1), "offsets grow"
            self._oracle.check_content((*part, offset), identity, key, value)
            if self._log.durable:
                self._oracle.confirm((*part, offset), identity)
            found[offset] = identity

    def _check_groups(self, state: StoreState) -> None:
        for name, group in state.groups.items():
            for topic_id, offsets in group.offsets.items():
                topic = state.topic_by_id(topic_id)
                assert topic is not None
                for partition, offset in offsets.items():
                    assert offset <= topic.partition(partition).end, "a group is beyond the end"
                    known = self._groups[name, (topic.name, partition)]
                    if self._log.durable:
                        assert offset >= known, f"group {name} went back from {known} to {offset}"
                        self._groups[name, (topic.name, partition)] = offset
