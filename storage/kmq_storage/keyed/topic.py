"""The topic of keyed queues, which is created when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.topics import create_topic

#: All queues of a topic are in one partition; sealing sorts their messages.
PARTITION = 0
_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


def keyed_topic(state: StoreState, name: str) -> Topic:
    """A topic with keyed queues; InvalidRequestError for a topic without them."""
    topic = state.topic(name)
    if not topic.settings.keyed:
        raise InvalidRequestError(
            f"topic {name} was made without keyed queues: take another name for them", topic=name
        )
    return topic


def ensure_keyed_topic(log: CommitLog, name: str, settings: Mapping[str, Any] = _DEFAULTS) -> None:
    """Make a topic of keyed queues unless it is there; as `keyed_topic` when it has none.

    KmqWarning when it is there with other `settings` than these, if there are any.
    """
    state = log.refresh()
    if state.find_topic(name) is not None:
        keyed_topic(state, name)
        if not settings:
            return
    create_topic(log, name, 1, {"keyed": True, **settings}, exist_ok=True, depth=1)
    keyed_topic(log.refresh(), name)
