"""Rules for all clients of buckets: names of options, secrets in messages, and forks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from kmq_storage.errors import IllegalStateError, InvalidRequestError

#: s3fs's names of options, and obstore's names for them.
_S3FS_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
}
#: Options whose values may be shown; all others count as secrets.
_PUBLIC = ("endpoint", "region", "bucket", "account_name", "container", "url", "host")
_SHORTEST_SECRET = 4
#: The user info in a URL, for example of an endpoint from the environment.
_USERINFO = re.compile(r"://[^\s/]*@")
#: The query of a URL, which may have a signature.
_QUERY = re.compile(r"\?\S*")
#: The start of a server's answer, which may name the user; only its code is shown.
_ANSWER = re.compile(r"<\?xml|<Error")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


def check_url(text: str) -> None:
    """InvalidRequestError when a URL has credentials, which would show wherever the URL does.

    The part before the "@" in Azure's `abfss://container@account...` is no secret.
    """
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    if scheme in ("abfs", "abfss") and host.count("@") == 1 and ":" not in host:
        host = host.partition("@")[2]
    _, colon, port = host.partition(":")
    # A secret may have a slash; its "@" is then in what looks like the path.
    is_secret = "@" in host or ("@" in path and colon and not port.isdecimal())
    if is_secret or "?" in rest or "#" in rest:
        raise InvalidRequestError(
            f"store {scheme}://...: a URL of a store has no credentials, query or fragment; give "
            "them as storage_options"
        )


def without_userinfo(text: str) -> str:
    """A URL, which may be invalid, without the part before its last "@"."""
    scheme, colon, rest = text.partition(":")
    return f"{scheme}:***@{rest.rpartition('@')[2]}" if colon and "@" in rest else text


def obstore_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options under obstore's names; s3fs's names are accepted, too."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("client_kwargs", "config") and isinstance(value, Mapping):
            found |= obstore_options(value)
        elif value is not None:
            found[_S3FS_NAMES.get(name, name)] = value
    return found


def secrets_of(options: Mapping[str, Any]) -> frozenset[str]:
    """Every text in the options that must not be shown."""
    found: set[str] = set()
    for name, value in options.items():
        if isinstance(value, Mapping):
            found |= secrets_of(value)
        elif isinstance(value, str) and not any(word in name.lower() for word in _PUBLIC):
            found.add(value)
    return frozenset(secret for secret in found if len(secret) >= _SHORTEST_SECRET)


def check_process(url: str, opened_by: int) -> None:
    """IllegalStateError in a forked child: connections and threads of a client are not shared."""
    if os.getpid() != opened_by:
        raise IllegalStateError(
            f"store {url} can't be used here: a store in a bucket was opened before this process "
            "was forked, and connections to a bucket can't be shared; start processes with "
            "'spawn', or fork them before one is opened",
            url=url,
        )


def without_secrets(text: str, secrets: frozenset[str]) -> str:
    """A client library's message: its first line, shortened and without secrets.

    Of a server's answer, only the code is kept.
    """
    line, code = _ANSWER.split(text.partition("\n")[0])[0], _CODE.search(text)
    line = _USERINFO.sub("://***@", line)
    for secret in sorted(secrets, key=len, reverse=True):  # one may be the start of another
        line = line.replace(secret, "***")
    return _QUERY.sub("", line)[:300] + (code[1] if code else "")
