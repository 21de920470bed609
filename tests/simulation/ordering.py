"""Members that take their partitions in order: what they can't handle becomes a dead letter.

The letter and the offset behind its record are one commit, as an orderly consumer makes it.
"""

from __future__ import annotations

from kmq_spark.client.orderly.dead_letters import Burials
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.record_values import records_of
from kmq_storage.errors import ConflictError, FencedError, OffsetOutOfRangeError
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import letters_topic
from tests.simulation.sharing import GROUP, GroupWorld, Sharer

_LETTERS = letters_topic(GROUP)
#: Every so many records is one that can't be handled.
_POISON = 3


def is_poisonous(offset: int) -> bool:
    """Whether a record can't be handled."""
    return offset % _POISON == 0


class OrderlySharer(Sharer):
    """A member that goes on behind a record when it handled it, or when its letter is stored."""

    def __init__(self, world: GroupWorld, number: int) -> None:
        super().__init__(world, number)
        self._burials: dict[Key, Burials] = {}

    def _stop_reading(self, keys: set[Key]) -> None:
        super()._stop_reading(keys)
        for key in keys:
            self._burials.pop(key, None)

    def _offsets(self, keys: set[Key], epoch: int) -> tuple[GroupOffsetsEntry, ...]:
        unsure = {
            key
            for key, burials in self._burials.items()
            if self._positions.get(key, 0) < burials.unsure_below
        }
        return super()._offsets(keys - unsure, epoch)

    def _read(self, key: Key, begin: int, end: int) -> int:
        return next((offset for offset in range(begin, end) if is_poisonous(offset)), end)

    def _commit(self, log: CommitLog, state: StoreState, epoch: int) -> None:
        super()._commit(log, state, epoch)
        for key, position in list(self._positions.items()):
            topic = state.topic_by_id(key[0])
            assert topic is not None
            part = topic.partition(key[1])
            if is_poisonous(position) and part.start <= position < part.end:
                self._bury(log, key, position, epoch)

    def _bury(self, log: CommitLog, key: Key, offset: int, epoch: int) -> None:
        record = _record(log, key, offset)
        self._note_read(key, offset + 1)
        if record is None:  # trimmed, or compacted
            self._positions[key] = offset + 1
            return
        burials = self._burials.setdefault(key, Burials(log))
        unit = burials.unit(GROUP, [record], [0], "no good")
        behind = GroupOffsetsEntry(GROUP, epoch, key[0], ((key[1], offset + 1),))
        if self._rng.random() < 0.3:
            self._world.scheduler.stall()  # somebody else may own it by then
        try:
            log.commit([Unit((*unit.entries, behind), unit.bodies)])
        except FencedError:
            self._stop_reading({key})
        except (OffsetOutOfRangeError, ConflictError):
            pass  # trimmed meanwhile, or what it staged was taken for an orphan
        else:
            burials.unsure_below = 0
            self._positions[key] = offset + 1
            self._note({key: offset + 1})
            self._world.done["buried"] += 1


class OrderlyWorld(GroupWorld):
    """A world whose members take their partitions in order."""

    member = OrderlySharer

    def finish(self) -> None:
        """Check what is left; and that each record that couldn't be handled has one letter."""
        super().finish()
        log = self.open()
        state = log.refresh()
        found = [
            (letter.properties["dead_letter_topic"], *_origin(letter))
            for letter in _all_records(log, state)
        ]
        assert len(found) == len(set(found)), f"a dead letter is there twice: {sorted(found)}"
        for topic_id, offsets in state.group_offsets(GROUP).items():
            topic = state.topic_by_id(topic_id)
            assert topic is not None
            for number, committed in offsets.items():
                mine = {each[2] for each in found if each[:2] == (topic.name, number)}
                start = topic.partition(number).start
                wanted = {o for o in range(start, committed) if is_poisonous(o)}
                lost = wanted - mine if topic.settings.cleanup == "delete" else set()
                assert not lost, "a record was passed over without a letter"
                assert not mine or max(mine) < committed, "a letter without its offset"


def _origin(letter: Record) -> tuple[int, int]:
    facts = letter.properties
    return facts["dead_letter_partition"], facts["dead_letter_offset"]


def _record(log: CommitLog, key: Key, offset: int) -> Record | None:
    topic = log.refresh().topic_by_id(key[0])
    assert topic is not None
    if topic.partition(key[1]).start > offset:
        return None
    span = (offset, offset + 1)
    for part in scan(log, ChunkReader(log.files), topic, key[1], span, batch_rows=1):
        return next(iter(records_of(part)), None)
    return None


def _all_records(log: CommitLog, state: StoreState) -> list[Record]:
    topic = state.find_topic(_LETTERS)
    if topic is None:
        return []
    part = topic.partition(0)
    span = (part.start, part.end)
    parts = scan(log, ChunkReader(log.files), topic, 0, span, batch_rows=100)
    return [record for part in parts for record in records_of(part)]
