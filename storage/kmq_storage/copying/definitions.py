"""The definition of a copied topic in the target; it tells a copy from other topics there."""

from __future__ import annotations

from kmq_storage.errors import AlreadyExistsError, InvalidRequestError
from kmq_storage.format.entries import TopicEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log


def put_definition(target: CommitLog, topic: Topic) -> None:
    """Create or change the topic in the target, so that it is as in the source, with its id.

    AlreadyExistsError for another topic of this name, InvalidRequestError for a copy that was
    changed or deleted there.
    """
    state = target.refresh()
    found = state.find_topic(topic.name)
    if found is not None:
        _check_is_copy(found, topic, target.files.url)
    else:
        _check_was_not_deleted(state, topic, target.files.url)
    definition = TopicEntry(topic.id, topic.name, topic.partitions, topic.settings.to_json())
    if found is None or (found.partitions, found.settings) != (topic.partitions, topic.settings):
        target.commit([Unit((definition,))])


def _check_is_copy(found: Topic, topic: Topic, url: str) -> None:
    """AlreadyExistsError for another topic, InvalidRequestError for a copy that was changed."""
    if found.id != topic.id:
        raise AlreadyExistsError(
            f"Topic[{topic.name}] exists already in {url}, and is no copy of this one; delete it "
            "there, or copy into another store",
            topic=topic.name,
        )
    versions = len(topic.settings.schemas)
    known = found.settings.schemas[:versions] == topic.settings.schemas
    for what, ahead in (
        (f"{found.partitions} partitions", found.partitions > topic.partitions),
        ("a newer schema", known and len(found.settings.schemas) > versions),
    ):
        if ahead:
            raise InvalidRequestError(
                f"Topic[{topic.name}] of {url} was changed since it was copied: it has {what}; "
                "change the source likewise, or copy into another store",
                topic=topic.name,
            )


def _check_was_not_deleted(state: StoreState, topic: Topic, url: str) -> None:
    """InvalidRequestError for a copy that was deleted, since its offsets were already used."""
    marks = (mark_of(topic, number) for number in range(topic.partitions))
    if any(state.batch_version(mark) for mark in marks):
        queue = queue_of_log(topic.name)
        what = f"Topic[{topic.name}]" if queue is None else f"Queue[{queue}]"
        raise InvalidRequestError(
            f"{what} was deleted in {url} since it was copied, and is not copied there again; "
            "copy into another store, or the other topics alone (`kmq copy --topic`)",
            topic=topic.name,
        )


def mark_of(topic: Topic, number: int) -> str:
    """The application id of the copy of a partition; its batch is the end offset."""
    return f"copy/{topic.id.hex()}/{number}"
