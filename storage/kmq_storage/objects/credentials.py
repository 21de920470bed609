"""What every client of a bucket must mind: names of options, secrets in messages, forks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from kmq_storage.errors import IllegalStateError, InvalidRequestError

#: s3fs's names of what obstore calls otherwise.
_S3FS_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
}
#: Texts in options that may be shown; everything else is taken for a secret.
_PUBLIC = ("endpoint", "region", "bucket", "account_name", "container", "url", "host")
_SHORTEST_SECRET = 4
#: Who asks, in a URL: of an endpoint, which may also come from the environment.
_USERINFO = re.compile(r"://[^\s/]*@")
#: A signature may stand in it.
_QUERY = re.compile(r"\?\S*")
#: What a server answers may name who asked; its code says what is wrong.
_ANSWER = re.compile(r"<\?xml|<Error")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


def check_url(text: str) -> None:
    """InvalidRequestError when a URL carries credentials: they would show wherever it does.

    What stands before the "@" in Azure's `abfss://container@account...` is no secret.
    """
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    if scheme in ("abfs", "abfss") and host.count("@") == 1 and ":" not in host:
        host = host.partition("@")[2]
    _, colon, port = host.partition(":")
    # A secret may have a slash: then its "@" stands in what looks like the path.
    is_secret = "@" in host or ("@" in path and colon and not port.isdecimal())
    if is_secret or "?" in rest or "#" in rest:
        raise InvalidRequestError(
            f"store {scheme}://...: a URL of a store has no credentials, query or fragment; give "
            "them as storage_options"
        )


def without_userinfo(text: str) -> str:
    """A URL, perhaps one that is none, without what stands before its last "@"."""
    scheme, colon, rest = text.partition(":")
    return f"{scheme}:***@{rest.rpartition('@')[2]}" if colon and "@" in rest else text


def obstore_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options under obstore's names; s3fs's names are accepted too."""
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
    """A message of a client library: its first line, short, and without the secrets.

    Of what a server answered there is the code only.
    """
    line, code = _ANSWER.split(text.partition("\n")[0])[0], _CODE.search(text)
    line = _USERINFO.sub("://***@", line)
    for secret in secrets:
        line = line.replace(secret, "***")
    return _QUERY.sub("", line)[:300] + (code[1] if code else "")
