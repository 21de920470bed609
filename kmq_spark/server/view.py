"""Reads one state of the store at a time, as values that no longer need the store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from kmq_spark.client.store import Store
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import CorruptionError, KmqError, NotFoundError, OffsetOutOfRangeError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import log_damage, what_to_do
from kmq_storage.maintenance.reports import StoreStats
from kmq_storage.model import to_datetime
from kmq_storage.tables.reading import table_of

_Result = TypeVar("_Result")

#: Files are counted again after this many seconds, but not before this many times as long as the
#: last count took: there may be a million files, which a bucket lists by the thousand.
_COUNTED_FOR, _TIMES = 60.0, 10
#: How many commits are shown beside the other tables.
_NEWEST_COMMITS = 20


@dataclass(frozen=True, slots=True)
class Seen:
    """Tables of one state of a store, by name."""

    url: str
    lsn: int
    #: When that commit was written; None in a store without any.
    time: datetime | None
    #: What can't be read, and what to do; empty if nothing damaged was found.
    damage: str
    #: The tables that can be read.
    tables: dict[str, pa.Table]


class View:
    """A store opened to be read; the first look after an error opens it again."""

    def __init__(self, opening: Callable[[], Store]) -> None:
        self._opening = opening
        self._lock = Lock()
        self._store: Store | None = None
        self._counting = Lock()
        #: The last count of files, and until when it is used.
        self._counted: tuple[StoreStats, float] | None = None

    def table(self, name: str, limit: int | None) -> pa.Table:
        """Return the rows of one table, at most `limit`."""
        return self._look(lambda log, state: table_of(log, state, name, limit=limit))

    def seen(self, names: Collection[str] = ()) -> Seen:
        """Return the tables of these names, all of one state, without damaged ones."""
        try:
            return self._look(lambda log, state: _seen(log, state, names))
        except CorruptionError:  # damage: a file that only moved would have been found again
            return self._look(lambda log, state: _seen(log, state, names, damaged=True))

    def stats(self) -> StoreStats:
        """Return the store's statistics of a while ago; only the request that renews them waits."""
        last = self._counted
        if last is not None and self._counting.locked():
            return last[0]
        with self._counting:
            begun = SYSTEM.monotonic()
            if self._counted is None or begun >= self._counted[1]:
                with self._opening() as store:
                    found = store.stats()
                now = SYSTEM.monotonic()
                self._counted = found, now + max(_COUNTED_FOR, _TIMES * (now - begun))
            return self._counted[0]

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            self._close()

    def _look(self, work: Callable[[CommitLog, StoreState], _Result]) -> _Result:
        """Do something with the present state; one caller at a time, as states change."""
        with self._lock:
            try:
                if self._store is None:
                    self._store = self._opening()
                log = self._store.log
                _check_there(log)
                return looking_again(log, lambda state: work(log, state))
            except (KmqError, OSError):
                self._close()
                raise

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _check_there(log: CommitLog) -> None:
    """NotFoundError for another store; an emptied bucket looks like a store without new writes."""
    if open_identity(log.files, log.environment, create=False).store_id != log.identity.store_id:
        raise NotFoundError(
            f"Store[{log.files.url}] was replaced by another store.", store=log.files.url
        )


def _seen(
    log: CommitLog, state: StoreState, names: Collection[str], *, damaged: bool = False
) -> Seen:
    damage = log_damage(state)
    told = [] if damage is None else [what_to_do(damage)]
    tables = {}
    for name in names:
        try:
            limit = _NEWEST_COMMITS if name == "commits" else None
            tables[name] = table_of(log, state, name, limit=limit)
        except (CorruptionError, OffsetOutOfRangeError) as error:
            if name == "commits":
                continue  # the other tables are shown without them
            if not damaged:
                raise
            told.append(str(error))
    time = to_datetime(state.time) if state.lsn else None
    return Seen(log.files.url, state.lsn, time, next(iter(told), ""), tables)
