"""The call of a store that opens an orderly consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kmq_spark.client.handles.arguments import checked_flag, checked_seconds
from kmq_spark.client.handles.living import Living
from kmq_storage.log.commit_log import CommitLog

if TYPE_CHECKING:
    from kmq_spark.client.orderly.consumer import OrderlyConsumer
    from kmq_spark.client.orderly.rules import Listener


class OpensOrderly:
    """The part of a store that opens orderly consumers."""

    log: CommitLog
    _handles: Living[AbstractContextManager[Any]]
    _keep_up: Callable[[], None]

    def orderly_consumer(
        self,
        group: str,
        topics: Iterable[str] | str,
        listener: Listener,
        *,
        max_reconsume_times: int = -1,
        when_exhausted: str = "dead_letter",
        suspend_current_queue_time: float | timedelta = 1.0,
        consume_batch_max_size: int = 1,
        auto_commit: bool = True,
    ) -> OrderlyConsumer:
        """Open a group member that calls `listener(records, context)`, in order per partition.

        The rules are those of RocketMQ's orderly consumer. The listener returns an `OrderlyStatus`,
        which decides how its partition goes on. A listener that raises, or returns anything else,
        suspends the partition. Start it with a `with` block or `start()`.

        Args:
            group: The group.
            topics: The topics that it reads.
            listener: A function of a list of records and an `OrderlyContext`.
            max_reconsume_times: How often suspended records are handed out again; -1: without end.
            when_exhausted: What then becomes of them: "dead_letter" moves them to topic
                `%DLQ%<group>`, "skip" passes over them, "block" hands them out for ever.
            suspend_current_queue_time: Seconds until suspended records come again.
            consume_batch_max_size: The most records of one call.
            auto_commit: With False, only the answer COMMIT commits.
        """
        # Loaded when it is used, for a quick import.
        from kmq_spark.client.orderly.consumer import OrderlyConsumer
        from kmq_spark.client.orderly.rules import OrderlySettings

        settings = OrderlySettings(
            max_reconsume_times=max_reconsume_times,
            when_exhausted=when_exhausted,
            suspend_current_queue_time=checked_seconds(
                "suspend_current_queue_time", suspend_current_queue_time
            ),
            consume_batch_max_size=consume_batch_max_size,
            auto_commit=checked_flag("auto_commit", auto_commit),
        )
        consumer = OrderlyConsumer(self.log, group, topics, listener, settings)
        self._handles.add(consumer)
        self._keep_up()
        return consumer
