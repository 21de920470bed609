"""The topic of keyed queues: made when it is first asked for."""

from __future__ import annotations

from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.topics import create_topic

#: All queues of a topic stand in one partition; sealing sorts them apart.
PARTITION = 0


def keyed_topic(state: StoreState, name: str) -> Topic:
    """A topic of keyed queues; InvalidRequestError when it is one of records only."""
    topic = state.topic(name)
    if not topic.settings.keyed:
        raise InvalidRequestError(
            f"topic {name} was made without keyed queues: take another name for them", topic=name
        )
    return topic


def ensure_keyed_topic(log: CommitLog, name: str) -> None:
    """Make a topic of keyed queues unless it is there; as `keyed_topic` when it has none."""
    state = log.refresh()
    if state.find_topic(name) is None:
        create_topic(log, name, 1, {"keyed": True}, exist_ok=True)
        state = log.refresh()
    keyed_topic(state, name)
