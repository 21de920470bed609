"""The calls of a store that concern queues: make, bind and delete them, and open one to receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from kmq_spark.client.handles.arguments import checked_flag, checked_names
from kmq_spark.client.handles.living import Living
from kmq_spark.client.queues.queue import Queue
from kmq_spark.client.records.values import to_timestamp
from kmq_spark.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.model import QueueInfo
from kmq_storage.queues import administration
from kmq_storage.queues.filters import tagged


class StoreQueues:
    """The part of a store that is about queues."""

    log: CommitLog
    _handles: Living[AbstractContextManager[Any]]
    _keep_up: Callable[[], None]

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
        """Create a queue; a queue that exists is kept as it is, with its records.

        Args:
            name: 1 to 244 characters of `A-Z a-z 0-9 . _ % -`.
            topics: Topics that it reads, from their first record on. `bind_queue` adds others.
            lock_timeout: Seconds that a receiver holds a record, unless it answers or extends that.
            max_deliveries: A record that was handed out this many times without success becomes a
                dead letter. None: never.
            backoff: Seconds until a record comes again after `nack`, by the number of its
                deliveries. The last value holds for all further ones.
            order: "none". "key": nobody else gets records of a key while a receiver holds one of
                them, or one waits to be tried again. "strict": the same for all records.
            dead_letter: The queue for dead letters. None: `<name>.dlq`, made on first use.
            capacity: Nothing more may be sent to the queue (QueueFullError) while it has this many
                unfinished records. None: no limit.
            uniq_window: Seconds in which a second record with the same `uniq` is not stored.
            exist_ok: With False, a queue that exists is AlreadyExistsError.

        A queue that exists with other settings, or isn't bound to these topics, gives a KmqWarning.
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
        return administration.create_queue(
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
        """Have a queue read more topics, or change the filter of topics that it reads.

        Args:
            name: The queue.
            topics: One topic, or several.
            start: "earliest", "latest" or a datetime with a time zone. A topic that the queue reads
                already goes on where it is.
            filter: An expression on properties; a record for which it isn't true never enters the
                queue. It has `=, <>, <, <=, >, >=, in (...), is null, and, or, not`, and text in
                single quotes.
            tags: RocketMQ's short form: only records whose property `tag` is one of `a || b`. "*"
                lets all in. With a filter, both must hold.

        Binding a topic again replaces its filter and tags, from then on.
        """
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise InvalidRequestError(
                f"start must be 'earliest', 'latest' or an instant, not {start!r}", option="start"
            )
        since = start if isinstance(start, str) else to_timestamp(start, "start")
        wanted = filter if tags is None else tagged(tags, filter)
        administration.bind_queue(self.log, name, checked_names(topics), since, filter=wanted)

    def unbind_queue(self, name: str, topics: Iterable[str] | str) -> None:
        """Have a queue stop reading these topics; it gives up their unfinished records."""
        administration.unbind_queue(self.log, name, checked_names(topics))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with what was sent to it; the topics that it read stay."""
        administration.delete_queue(self.log, name)

    def queues(self) -> list[QueueInfo]:
        """Describe every queue, sorted by name.

        KmqWarning when damage to the log may hide some of what was done to them.
        """
        for each in self._handles.all():
            if isinstance(each, Queue):
                each._ahead.settle()
        found = administration.list_queues(self.log)
        warn_of_doubtful_ends(self.log.state, self.log.state.topics.values())
        return found

    def queue(self, name: str, *, prefetch: int = 1983) -> Queue:
        """Open a queue to receive from it; NotFoundError when there is none of this name.

        `prefetch`: a receiver that calls `receive` again and again holds up to this many records
        ahead, which makes it fast. That takes `durability="os"`, a store on a disk, and a queue
        without capacity and strict order whose locks last a second; with order by key, one record
        of each key. 1 holds nothing ahead.
        """
        queue = Queue(self.log, name, prefetch)
        self._handles.add(queue)
        self._keep_up()
        return queue
