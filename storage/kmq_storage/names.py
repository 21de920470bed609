"""Rules for names of topics, queues, groups and producers: names are data, never paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from kmq_storage import limits
from kmq_storage.errors import InvalidRequestError

_ALLOWED = re.compile(r"[A-Za-z0-9._%-]+\Z")


def check_name(kind: str, name: object, *, is_new: bool = True) -> str:
    """Return the name, or raise InvalidRequestError saying which rule it breaks.

    One that is not new may be derived from another name, and so be longer.
    """
    derives = is_new and kind in ("group", "queue")
    longest = limits.GROUP_NAME_LENGTH_MAX if derives else limits.NAME_LENGTH_MAX
    if not isinstance(name, str):
        raise InvalidRequestError(f"{kind} name must be text, not {type(name).__name__}", kind=kind)
    if not 1 <= len(name) <= longest:
        raise InvalidRequestError(
            f"{kind} name has {len(name)} characters; 1 to {longest} are allowed", name=name[:300]
        )
    if name in (".", "..") or not _ALLOWED.match(name):
        raise InvalidRequestError(
            f"{kind} name {name!r} is not allowed: use letters, digits and . _ % - "
            "(and not '.' or '..')",
            name=name,
        )
    return name


def is_word(value: object, words: Iterable[str]) -> bool:
    """Whether a value is one of some words; safe for arrays, whose comparison is no bool."""
    return isinstance(value, str) and value in words


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint ' (did you mean ...?)', or nothing when no known word is near."""
    import difflib  # only needed for errors

    found = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def accounts_of(topic: str, group: str) -> str:
    """The name of the topic with a group's accounts of a keyed topic's queues."""
    return f"{topic}%{group}"


def queues_of_accounts(topic: str) -> tuple[str, str] | None:
    """The topic and the group of an accounts topic's name; None for any other name."""
    queues, percent, group = topic.rpartition("%")
    return (queues, group) if percent else None


#: The prefix of the topics that are queues' own logs; no user's topic can have it.
_QUEUE_LOG = "queue:"


def queue_log(queue: str) -> str:
    """The name of the topic that is a queue's own log."""
    return _QUEUE_LOG + queue


def checked_queue_log(queue: object) -> str:
    """The same for a name that a user gave; InvalidRequestError says which rule it breaks."""
    return _checked_queue_log(queue) if isinstance(queue, str) else check_name("queue", queue)


@lru_cache(maxsize=1024)  # every record that is sent to a queue asks
def _checked_queue_log(queue: str) -> str:
    return queue_log(check_name("queue", queue, is_new=False))


def queue_of_log(topic: str) -> str | None:
    """The queue whose own log a topic is; None for a user's topic."""
    return topic[len(_QUEUE_LOG) :] if topic.startswith(_QUEUE_LOG) else None


def users_topic(topic: str) -> str | None:
    """The name as users see it; None for a queue's own log."""
    return topic if queue_of_log(topic) is None else None


#: The prefix of the topics of the records that groups gave up.
_GROUP_LETTERS = "%DLQ%"


def letters_topic(group: str) -> str:
    """The name of the topic with a group's dead letters."""
    return _GROUP_LETTERS + group


def group_of_letters(topic: str) -> str | None:
    """The group whose dead letters a topic has; None for any other topic."""
    return topic[len(_GROUP_LETTERS) :] if topic.startswith(_GROUP_LETTERS) else None


def positions_group(queue: str) -> str:
    """The name of the group with the positions of a queue's OpenMessaging consumers."""
    return f"oms.{queue}"
