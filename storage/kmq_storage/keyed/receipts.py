"""What groups of receivers did with one message of a keyed queue, by their accounts of the queue.

Each delivery and each answer is a commit with a new account, so what became of the message is the
difference between one account and the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from kmq_storage.errors import KmqError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.records import column_of, keys_of
from kmq_storage.keyed.account import Account, UnderWay
from kmq_storage.keyed.reading import QueueReader
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.as_sent import as_sent
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Commit
from kmq_storage.names import queues_of_accounts

_COLUMNS = frozenset({"key", "value"})
#: A message that no receiver of the group had yet, and one that is finished.
_UNTOUCHED, _DONE = "untouched", "done"


class Receipts:
    """Tells what the accounts of all groups say of one message."""

    def __init__(self, log: CommitLog, topic: Topic, offset: int) -> None:
        self._log, self._topic, self._offset = log, topic, offset
        self._reader = ChunkReader(log.files)
        #: The topics of accounts, and their groups.
        self._groups = dict[bytes, tuple[Topic, str]]()
        for each in log.state.user_topics() if topic.settings.keyed else ():
            named = queues_of_accounts(each.name)
            if named is not None and named[0] == topic.name and each.settings.keyed:
                self._groups[each.id] = each, named[1]
        #: The name of its queue; None when it can't be read, or is a record that deletes a queue.
        self._queue = self._stored_queue() if self._groups else None
        #: What the last account of each group in the log says.
        self._known: dict[str, UnderWay | str] = {}
        #: Whether the log has all accounts since the message was sent.
        self._is_begun = False
        self.finished: set[str] = set()

    def begin(self, sent: RecordsEntry, commit: Commit) -> None:
        """The commit sent the message: all accounts of it are behind it in the log."""
        self._is_begun = True
        if self._groups and self._queue is None:
            with suppress(KmqError):
                batch = as_sent(self._reader, self._topic.layout(_COLUMNS), sent, commit)
                self._queue = _queue_in(batch, self._offset - sent.base_offset)

    def told(self, sent: RecordsEntry, commit: Commit) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What accounts that were put in this commit tell of the message."""
        found = self._groups.get(sent.topic_id)
        if found is None or self._queue is None:
            return
        topic, group = found
        with suppress(KmqError):
            batch = as_sent(self._reader, topic.layout(_COLUMNS), sent, commit)
            keys, values = keys_of(batch), column_of(batch, "value")
            if keys is None or values is None:  # another program's records
                return
            for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                if key == self._queue and value is not None:
                    yield from self._changed(group, value)

    def _changed(self, group: str, stored: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
        now = self._state_in(stored)
        before = self._known.get(group, _UNTOUCHED if self._is_begun else now)
        self._known[group] = now
        event = _event_of(before, now)
        if event == "acked" and not self._is_there:
            event = "finished"  # or deleted with its queue, which an account tells alike
        if event in ("acked", "finished"):
            self.finished.add(group)
        if event:
            last = before if isinstance(now, str) else now
            count = {} if isinstance(last, str) else {"delivery": last.count}
            yield event, {"group": group, **count}

    def settled(self) -> Iterator[str]:
        """The groups that finished the message in commits that are no longer in the log."""
        for topic, group in self._groups.values():
            if self._queue is None or group in self.finished or self._is_begun:
                continue
            with suppress(KmqError):
                accounts = QueueReader(self._log, topic.name)
                first, _ = accounts.span(self._queue)
                for stored in accounts.messages(self._queue, first, 1).to_pylist():
                    if self._state_in(stored) == _DONE:
                        yield group

    def _state_in(self, stored: bytes) -> UnderWay | str:
        """What an account says of the message; nothing if it is about another topic of the name."""
        with suppress(struct.error):
            account = Account.from_bytes(stored)
            held = [each for each in account.under_way if each.offset == self._offset]
            if account.topic_id == self._topic.id and self._offset < account.next:
                return held[0] if held else _DONE
        return _UNTOUCHED

    @property
    def _is_there(self) -> bool:
        """Whether the message was not deleted, as far as it can be told."""
        with suppress(KmqError):
            messages = QueueReader(self._log, self._topic.name)
            return bool(messages.at(self._queue or b"", [self._offset], 1))
        return True

    def _stored_queue(self) -> bytes | None:
        """The queue of the message as it is stored now."""
        span = self._offset, self._offset + 1
        layout = self._topic.layout(_COLUMNS)
        with suppress(KmqError):
            for part in scan(
                self._log, self._reader, self._topic, PARTITION, span, batch_rows=1, layout=layout
            ):
                return _queue_in(part.batch, 0) if part.rows else None
        return None


def _queue_in(batch: pa.RecordBatch, row: int) -> bytes | None:
    keys, values = keys_of(batch), column_of(batch, "value")
    if keys is None or values is None or not values[row].is_valid:
        return None
    queue: bytes | None = keys[row].as_py()
    return queue


def _event_of(before: UnderWay | str, now: UnderWay | str) -> str | None:
    """The event between two states of a message; None if nothing happened to it."""
    if before == now or now == _UNTOUCHED:
        return None
    if isinstance(now, str):
        return "acked" if isinstance(before, UnderWay) else "finished"
    had = before.count if isinstance(before, UnderWay) else 0
    if now.count != had:
        return "delivered" if now.count > had else "released"
    return "extended" if now.is_held else "retried"
