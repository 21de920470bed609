"""A queue in one SQLite table, as the queue libraries on SQLite have it: the peer of kmq's."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_TABLE = """create table queue (
    id integer primary key, value blob not null, at real not null, deliveries integer not null
)"""
_TAKE = """update queue set at = ?, deliveries = deliveries + 1
    where id in (select id from queue where at <= ? order by id limit ?) returning id, value"""
_LOCK_SECONDS = 30.0


class SqliteQueue:
    """Put, receive under a lock that ends, acknowledge; each call is one transaction."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._db = sqlite3.connect(folder / "queue.db", isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute(f"pragma synchronous = {'full' if durable else 'off'}")
        self._db.execute(_TABLE)
        self._db.execute("create index ready on queue (at, id)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def put(self, values: Sequence[bytes]) -> None:
        """Store records."""
        with self._db:
            self._db.execute("begin immediate")
            self._db.executemany(
                "insert into queue (value, at, deliveries) values (?, 0, 0)",
                [(value,) for value in values],
            )

    def receive(self, most: int) -> list[tuple[int, bytes]]:
        """Ids and values of records that nobody else gets meanwhile."""
        now = time.time()
        return self._db.execute(_TAKE, (now + _LOCK_SECONDS, now, most)).fetchall()

    def ack(self, ids: Sequence[int]) -> None:
        """These are done."""
        with self._db:
            self._db.execute("begin immediate")
            self._db.executemany("delete from queue where id = ?", [(each,) for each in ids])
