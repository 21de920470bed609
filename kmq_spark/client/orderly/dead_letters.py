"""Dead letters: records that a group gives up, kept in a topic of the group's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kmq_spark.client.queues.dead_letters import letters_unit, without_deaths
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.values import PropertyValue
from kmq_spark.errors import InvalidRequestError
from kmq_storage import topics
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import letters_topic


class Burials:
    """The dead letters of one process queue: each is stored once, whatever is known of an attempt.

    A commit of letters has a number. If its outcome is unknown, the next one first looks in the
    log; one that arrives late is found by its number when the next one is bound.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._name = f"dead-letters-{log.environment.new_uuid().hex}"
        self._number = 0
        #: Until it is known whether the last commit is stored, which has the group go on behind its
        #: letters, no offset below this one must be committed. The commit that settles it sets 0.
        self.unsure_below = 0
        #: The offsets of the letters with that number.
        self._tried: frozenset[int] = frozenset()

    def unit(
        self, group: str, records: Sequence[Record], counts: Sequence[int], reason: str
    ) -> Unit:
        """Return the unit that commits letters for those of these records that have none."""
        stored = self._log.written_state().producers.get(self._name)
        done = self._tried if stored is not None and stored.sequence == self._number else ()
        left = [pair for pair in zip(records, counts, strict=True) if pair[0].offset not in done]
        if not left:
            return Unit(())
        offsets = frozenset(record.offset for record, _ in left)
        if offsets != self._tried:
            self._number, self._tried = self._number + 1, offsets
        self.unsure_below = max(offsets) + 1
        mine, times = [record for record, _ in left], [count for _, count in left]
        letters = dead_letters(self._log, group, mine, times, reason)
        number = ProducerEntry(self._name, 0, self._number)
        return replace(letters, entries=(*letters.entries, number))


def dead_letters(
    log: CommitLog, group: str, records: Sequence[Record], counts: Sequence[int], reason: str
) -> Unit:
    """Return the unit that commits records of one partition as dead letters, with their origin.

    The topic is made when it is missing. A dead letter is never too large for it.
    """
    topic = _topic(log, letters_topic(group))
    log.refresh()
    letters = []
    for record, count in zip(records, counts, strict=True):
        told: dict[str, PropertyValue] = {
            "dead_letter_group": group,
            "dead_letter_topic": str(record.topic),
            "dead_letter_partition": record.partition,
            "dead_letter_offset": record.offset,
            "dead_letter_count": count + 1,
            "dead_letter_reason": reason,
        }
        letters.append((record, without_deaths(record) | told))
    return letters_unit(log, topic, records[0].partition % topic.partitions, letters)


def _topic(log: CommitLog, name: str) -> Topic:
    if log.refresh().find_topic(name) is None:
        topics.create_topic(log, name, 1, {}, exist_ok=True)
    found = log.refresh().topic(name)
    if found.settings.schemas:
        raise InvalidRequestError(
            f"topic {name} has a schema, and dead letters have a key and a value: delete it, and "
            "one without a schema is made",
            topic=name,
        )
    return found
