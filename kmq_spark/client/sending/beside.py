"""What a transaction commits beside its records: acknowledgements, and offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from kmq_spark.client.keyed.receiving import KeyedDelivery
from kmq_spark.client.queues.delivery import Answers, Delivery
from kmq_spark.client.queues.reading import answered_by
from kmq_spark.errors import InvalidRequestError, NotFoundError
from kmq_storage.format.entries import Entry, GroupOffsetsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import ACK, Run
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.group_state import Ownership
from kmq_storage.queues.handing import answer, id_in_store, merged


class GroupOffsets:
    """The offsets that a transaction commits; the last word for a partition counts."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        #: By group, topic and partition; with the generation of who commits it.
        self._offsets: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        self._members: tuple[str, ...] = ()
        self._owned = set[Ownership]()

    def add(self, unit: Unit) -> None:
        """Add the offsets of a unit; later ones replace earlier ones."""
        for entry in unit.entries:
            assert isinstance(entry, GroupOffsetsEntry), "nothing else was asked for"
            for partition, offset in entry.offsets:
                key = (entry.group, entry.topic_id, partition)
                self._offsets[key] = (entry.generation, offset)
        self._members += unit.members
        self._owned.update(unit.owned)

    def note(self) -> None:
        """Tell the consumers that their offsets are committed."""
        for each in self._owned:
            key = (each.group, each.topic_id, each.partition)
            each.committed = self._offsets[key][1] if key in self._offsets else each.committed

    def unit(self) -> Unit:
        """An entry per group, generation and topic.

        A member's positions in what was trimmed away meanwhile are left out.
        """
        found: dict[tuple[str, int, bytes], dict[int, int]] = {}
        state = self._log.recent_state()  # what was trimmed since is refused, and left out then
        for (group, topic_id, partition), (generation, offset) in self._offsets.items():
            topic = state.topic_by_id(topic_id)
            is_trimmed = topic is not None and offset < topic.partition(partition).first
            if generation == -1 or not is_trimmed:
                found.setdefault((group, generation, topic_id), {})[partition] = offset
        entries = (
            GroupOffsetsEntry(*key, tuple(sorted(offsets.items())))
            for key, offsets in found.items()
        )
        return Unit(tuple(entries), members=self._members, owned=tuple(self._owned))


class Acknowledged:
    """The deliveries that a transaction acknowledges."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._held: dict[Answers, dict[tuple[Key, int], Delivery]] = {}
        #: Rows of tables, by the id of their queue; a row may be in it twice.
        self._rows: dict[bytes, list[Run]] = {}

    def add(self, delivery: Delivery) -> None:
        """Acknowledge a delivery with the commit."""
        self._held.setdefault(delivery.hold.queue, {})[delivery.place] = delivery

    def add_table(self, table: pa.Table | pa.RecordBatch) -> None:
        """Acknowledge rows of a table from `receive_arrow` with the commit."""
        here, runs = answered_by(table)
        if runs:
            self._rows.setdefault(id_in_store(self._log, here), []).extend(runs)

    def entries(self) -> list[Entry]:
        """An entry per queue; NotFoundError for one that this store doesn't have."""
        found: list[Entry] = []
        if not (self._held or self._rows):
            return found  # refreshing a store in a bucket costs a request
        state = self._log.refresh()
        for queue, held in self._held.items():
            entry, first = queue._ack_entry(held.values()), next(iter(held.values()))
            is_here = first.hold.id_in_store == id_in_store(self._log, entry.queue_id)
            if not is_here or state.queues.by_id(entry.queue_id) is None:
                raise _unknown(f"a queue {first.queue}")
            found.append(entry)
        for queue_id, runs in self._rows.items():
            live = state.queues.by_id(queue_id)
            if live is None:
                raise _unknown("a queue")
            found.append(answer(self._log, live, ACK, _last_words(runs)))
        return found


class KeyedAcknowledged:
    """The deliveries of keyed queues that a transaction acknowledges."""

    def __init__(self, log: CommitLog) -> None:
        self._store_id = log.identity.store_id
        #: By topic and group: what one commit changes is one account per queue.
        self._held: dict[tuple[str, str], list[KeyedDelivery]] = {}

    def add(self, delivery: KeyedDelivery) -> None:
        """Acknowledge a delivery with the commit; InvalidRequestError for one of another store."""
        log = delivery._receiver.log
        if log.identity.store_id != self._store_id:
            raise InvalidRequestError(
                f"the delivery is of store {log.files.url}, and a transaction acknowledges what is "
                "of its own store"
            )
        self._held.setdefault((delivery.topic, delivery.group), []).append(delivery)

    def units(self) -> list[Unit]:
        """A unit per topic and group; LeaseExpiredError for what is not held any more."""
        return [some[0]._receiver.acknowledging(some) for some in self._held.values()]


def _unknown(queue: str) -> NotFoundError:
    return NotFoundError(
        f"what is to be acknowledged is of {queue} that doesn't exist in this store: it was "
        "deleted, or received from another store"
    )


def _last_words(runs: Sequence[Run]) -> list[Run]:
    """These runs in order; of records that were received twice the later delivery."""
    found = merged(runs)
    if all(one.key != two.key or one.end <= two.first for one, two in pairwise(found)):
        return found
    rows = {
        (run.key, offset): run._replace(first=offset, rows=1)
        for run in runs
        for offset in range(run.first, run.end)
    }
    return merged(list(rows.values()))
