"""Topics that hold accounts: what a group did with each queue of a keyed topic, as one record."""

from __future__ import annotations

from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queues_of_accounts


def what_it_holds(state: StoreState, topic: Topic) -> str | None:
    """What a group's accounts topic holds, in words for messages; None for any other topic."""
    of = queues_of_accounts(topic.name) if topic.settings.keyed else None
    queues = None if of is None else state.find_topic(of[0])
    if of is None or queues is None or not queues.settings.keyed:
        return None
    return f"what group {of[1]} did with the queues of {of[0]}"


def check_may_be_trimmed(state: StoreState, topic: Topic) -> None:
    """InvalidRequestError for a topic with a group's accounts of keyed queues."""
    what = what_it_holds(state, topic)
    if what is not None:
        raise InvalidRequestError(
            f"topic {topic.name} has {what}, one record for each: it takes no trim and no "
            "retention; delete it to have the group begin anew with all of them",
            topic=topic.name,
        )
