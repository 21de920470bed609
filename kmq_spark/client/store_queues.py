"""What a store can do with queues: make, bind and delete them, and open one to receive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from kmq_spark.client.arguments import checked_flag, checked_names
from kmq_spark.client.queue import Queue
from kmq_spark.client.values import to_timestamp
from kmq_spark.errors import InvalidRequestError
from kmq_storage import queues
from kmq_storage.filters import tagged
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.model import QueueInfo


class StoreQueues:
    """The part of a store that is about queues."""

    log: CommitLog
    _handles: weakref.WeakSet[AbstractContextManager[Any]]

    def create_queue(
        self,
        name: str,
        *,
        topics: Iterable[str] = (),
        lock_timeout: float | timedelta = 30.0,
        max_deliveries: int | None = 16,
        backoff: Iterable[float | timedelta] = (1, 5, 30, 120),
        order: str = "none",
        dead_letter: str | None = None,
        capacity: int | None = None,
        uniq_window: float | timedelta = 120.0,
        exist_ok: bool = True,
    ) -> QueueInfo:
        """Make a queue that reads these topics in full; one that exists is kept with its data.

        Times in seconds: `lock_timeout` is how long a receiver holds a record, `backoff` what
        `nack` waits, by the number of deliveries. After `max_deliveries` (None: never) a record
        goes to the queue `dead_letter`, or `<name>.dlq`. `order`: `none`, `key` (nobody else gets
        records of a key while somebody holds one) or `strict` (nor any other). `capacity`:
        unfinished records when no more may be sent to it. AlreadyExistsError with
        `exist_ok=False`, KmqWarning for other settings.
        """
        settings = {
            "lock_timeout": lock_timeout,
            "max_deliveries": max_deliveries,
            "backoff": backoff,
            "order": order,
            "dead_letter": dead_letter,
            "capacity": capacity,
            "uniq_window": uniq_window,
        }
        is_kept = checked_flag("exist_ok", exist_ok)
        return queues.create_queue(
            self.log, name, checked_names(topics), settings, exist_ok=is_kept
        )

    def bind_queue(
        self,
        name: str,
        topics: Iterable[str] | str,
        *,
        start: str | datetime = "earliest",
        filter: str | None = None,  # noqa: A002 - the name users type
        tags: str | None = None,
    ) -> None:
        """Have a queue read topics too: from `earliest`, `latest` or an instant on.

        `filter`: an expression on properties (`=, <>, <, <=, >, >=, in (...), is null, and, or,
        not`, text in single quotes); what it refuses never enters the queue. `tags`: only records
        whose property `tag` is one of these, `a || b` (`*`: all records); a filter counts beside
        it. Binding a topic again changes both from then on.
        """
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise InvalidRequestError(
                f"start must be 'earliest', 'latest' or an instant, not {start!r}", option="start"
            )
        since = start if isinstance(start, str) else to_timestamp(start, "start")
        wanted = filter if tags is None else tagged(tags, filter)
        queues.bind_queue(self.log, name, checked_names(topics), since, filter=wanted)

    def unbind_queue(self, name: str, topics: Iterable[str] | str) -> None:
        """Have a queue read topics no more; what it had not finished of them it gives up."""
        queues.unbind_queue(self.log, name, checked_names(topics))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with what was sent to it; the topics that it read stay."""
        queues.delete_queue(self.log, name)

    def queues(self) -> list[QueueInfo]:
        """Every queue, by name; KmqWarning when damage may hide some of what was done to them."""
        for each in list(self._handles):
            if isinstance(each, Queue):
                each._ahead.settle()
        found = queues.list_queues(self.log)
        warn_of_doubtful_ends(self.log.state, self.log.state.topics.values())
        return found

    def queue(self, name: str, *, prefetch: int = 1983) -> Queue:
        """A queue to receive from; NotFoundError when there is none of this name.

        `prefetch`: who calls `receive` again and again holds up to so many records ahead (with
        `durability="os"`, on a disk, in queues without order and capacity); 1 for none.
        """
        queue = Queue(self.log, name, prefetch)
        self._handles.add(queue)
        return queue
