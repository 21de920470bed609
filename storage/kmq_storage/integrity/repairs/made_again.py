"""Recreated topics, whose creating commits are lost: their files tell names and schemas.

Segments have the name of their topic and the versions of its schema. Staged files have the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from kmq_storage.errors import CorruptionError, InvalidRequestError
from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.manifest import STAGED
from kmq_storage.integrity.remains.segments import FoundSegment, find_segments
from kmq_storage.integrity.remains.unnamed_staged import records_of
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, recovered_name
from kmq_storage.model import TopicSettings
from kmq_storage.names import check_name
from kmq_storage.objects.files import Files


def made_again(state: StoreState) -> list[Topic]:
    """The topics that have a made-up name."""
    topics = list(state.topics.values())
    return [topic for topic in topics if topic.name == recovered_name(topic.id)]


def named_again(log: CommitLog) -> Iterator[str]:
    """Give recreated topics the names and settings that their files tell.

    This is done once there is no damage in the log. Yields what was done, in words.
    """
    state = log.refresh()
    topics = made_again(state)
    if not topics or state.damage or state.broken is not None:
        return
    found = list(find_segments(log.files, log.identity.store_id))
    for topic in topics:
        own = [segment for segment in found if segment.topic_id == topic.id]
        name, settings = _name(log, topic, own), _settings(topic.settings, own)
        if name != topic.name or settings != topic.settings:
            entry = TopicEntry(topic.id, name, topic.partitions, settings.to_json())
            log.commit([Unit((entry,))], durable=True)
            yield f"topic {topic.name}: it is {name} again, as its files say"


def _name(log: CommitLog, topic: Topic, segments: Iterable[FoundSegment]) -> str:
    """The name in a topic's files, unless it is invalid or another topic has it."""
    told = chain((segment.topic for segment in segments), _told_by_staged(log.files, topic))
    for name in told:
        with suppress(InvalidRequestError):
            if check_name("topic", name) not in log.state.topics:
                return name
    return topic.name


def _told_by_staged(files: Files, topic: Topic) -> Iterator[str]:
    for number, part in enumerate(topic.parts):
        with suppress(CorruptionError):  # a damaged page does not tell the files
            for row in topic.index(number).rows(part.start, part.end):
                if row.kind == STAGED:
                    file = row.path((topic.id, number))
                    yield from (name for name, _, _ in records_of(files, file))


def _settings(known: TopicSettings, segments: Iterable[FoundSegment]) -> TopicSettings:
    for segment in segments:
        schemas = max(known.schemas, segment.schemas, key=len)
        keyed, trims = known.keyed or segment.row.in_run, known.trims or segment.begun
        known = replace(known, schemas=schemas, keyed=keyed, trims=trims)
    return known
