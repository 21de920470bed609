"""What a store offers of orderly consumption."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kmq_spark.client.arguments import checked_flag, checked_seconds
from kmq_storage.log.commit_log import CommitLog

if TYPE_CHECKING:
    from kmq_spark.client.orderly.consumer import OrderlyConsumer
    from kmq_spark.client.orderly.rules import Listener


class OpensOrderly:
    """The part of a store that opens orderly consumers."""

    log: CommitLog
    _handles: weakref.WeakSet[AbstractContextManager[Any]]

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
        """A member of a group that calls `listener(records, context)`, in order per partition.

        What it answers, an OrderlyStatus, decides how its partition goes on; one that raises, or
        answers anything else, suspends. Suspended records come again `max_reconsume_times` times
        (-1: without end) after `suspend_current_queue_time` seconds; then they go to topic
        `%DLQ%<group>`, are passed over ("skip") or still come again ("block"). Without
        `auto_commit` nothing is committed but by COMMIT.
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
        return consumer
