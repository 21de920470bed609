"""The location of a store as text: a path, or a URL, also as Hadoop and Spark write it."""

from __future__ import annotations

import os
import re

from kmq_storage.errors import InvalidRequestError
from kmq_storage.objects.credentials import without_userinfo

#: A scheme without all of its slashes. With one slash it may be any scheme, such as `dbfs:/shop`.
_SHORT = re.compile(
    r"(file|memory|s3|s3a|gs|az|abfss?|adl|hdfs|https?|[a-z][a-z0-9+.-]+(?=:/)):(?!//)",
    re.IGNORECASE,
)


def whole_url(text: str) -> str:
    """`file:/a` as `file:///a`; InvalidRequestError for other URLs without their slashes."""
    short = _SHORT.match(text)
    if short is None:
        return text
    rest = text[short.end() :]
    if short[1].lower() == "file" and rest.startswith("/"):
        return f"file://{rest}"
    text = without_userinfo(text)
    raise InvalidRequestError(
        f"store {text!r} looks like a URL without its slashes: write {short[1].lower()}://..., or "
        f"./{text} for a path",
        url=text,
    )


def scheme_of(text: str) -> str:
    """What is before `://`, also if it is no valid scheme; empty for a path."""
    scheme, is_url, _ = text.partition("://")
    return scheme.lower() if is_url and "/" not in scheme else ""


def is_relative(text: str) -> bool:
    """Whether it is a path whose meaning depends on the working directory."""
    url = whole_url(text)
    return not scheme_of(url) and not os.path.isabs(os.path.expanduser(url))


def absolute(text: str) -> str:
    """A URL as it is, a path as an absolute one."""
    url = whole_url(text)
    return url if scheme_of(url) else os.path.abspath(os.path.expanduser(url))
