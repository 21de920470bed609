"""Options of a bucket's client, checked before anything is opened.

obstore finds some wrong options only when it makes a request, and then panics, or its message has a
type but not the name of the option. No message here shows a value, since it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import nearest

#: The most frequent options, and their names elsewhere, for hints; obstore knows more options.
_USUAL = (
    *("access_key_id", "secret_access_key", "session_token", "endpoint", "region"),
    *("skip_signature", "virtual_hosted_style_request", "request_payer", "conditional_put"),
    *("key", "secret", "token", "endpoint_url", "region_name", "anon", "client_kwargs"),
    *("service_account", "service_account_key", "application_credentials", "bearer_token"),
    *("account_name", "account_key", "client_id", "client_secret", "tenant_id", "sas_key"),
    *("client_options", "credential_provider"),
    *("timeout", "connect_timeout", "allow_http", "default_headers", "proxy_url", "user_agent"),
    *("cache_bytes", "cache_folder", "cache_folder_bytes"),
)
#: The options of the HTTP client of every scheme, besides `default_headers`. obstore panics if they
#: are among the options of the bucket itself.
_OF_CLIENT = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type"),
        *("default_headers", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"),
        *("http2_keep_alive_while_idle", "http2_max_frame_size", "http2_only"),
        *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes"),
        *("proxy_url", "randomize_addresses", "read_timeout", "timeout", "user_agent"),
    )
)
#: The types that an option of the HTTP client can have; `default_headers` is a mapping.
_CLIENT = (str, bool, timedelta, Mapping)
_UNKNOWN = re.compile(r"(?:Configuration key: '|Invalid key: )([\w-]+)")


def checked_options(options: object) -> dict[str, Any]:
    """The options by name; InvalidRequestError when they are not a mapping of options."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise _refused(f"a mapping of names to values, not {type(options).__name__}")
    for name in options:
        if not isinstance(name, str):
            raise _refused(f"names are text, not {type(name).__name__}")
    return dict(options)


def option_text(value: object) -> str:
    """An option's value as text; truth values as Spark and delta-rs write them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_client_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options under obstore's names, with those of the HTTP client moved into `client_options`.

    Options of the HTTP client may be given in `client_options`, or, as Spark's options must be,
    beside the other options.
    """
    client = checked_options(given.get("client_options"))
    found: dict[str, Any] = {}
    for name, value in given.items():
        inner = name.lower().removeprefix("aws_")
        if inner in _OF_CLIENT:
            client.setdefault(inner, value)
        else:
            found[name] = value
    return {**found, "client_options": client} if client else found


def check_client(given: Mapping[str, Any]) -> None:
    """Raise InvalidRequestError for options (under obstore's names) that would fail a request."""
    for name, value in given.items():
        if name == "client_options":
            for inner, setting in checked_options(value).items():
                _check_type(f"{name}.{inner}", setting, _CLIENT, "text, a bool or a timedelta")
        elif name == "retry_config":
            raise _refused("retry_config is kmq's own: a commit must not be tried again unseen")
        elif name == "credential_provider":
            _check_type(name, value, (Callable,), "a callable")
        else:
            _check_type(name, value, (str, bool), "text or a bool")
            if "endpoint" in name:
                check_endpoint(name, value)
            elif "service_account" not in name:  # a service account may be JSON of several lines
                _check_printable(name, value)


def check_endpoint(name: str, value: object) -> None:
    """Raise InvalidRequestError unless the value is the URL of a server."""
    text = str(value)
    if " " in text or not _fits_a_header(text) or not _is_server(text):
        raise _refused(f"{name} is no URL of a server, as http://127.0.0.1:9000 is one")


def unknown_option(message: str) -> InvalidRequestError | None:
    """The error for obstore's message about an unknown option; None for other messages."""
    found = _UNKNOWN.search(message)
    if found is None:
        return None
    others = (name for name in _USUAL if name != found[1])  # it may be one of another scheme
    return _refused(f"{found[1]!r} is unknown{nearest(found[1], others)}")


def _is_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _check_type(name: str, value: object, kinds: tuple[Any, ...], wanted: str) -> None:
    if not isinstance(value, kinds):
        raise _refused(f"{name} is {wanted}, not {type(value).__name__}")


def _check_printable(name: str, value: str | bool) -> None:
    if isinstance(value, str) and not _fits_a_header(value):
        raise _refused(f"{name} holds a line break, or another character that no request can")


def _refused(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"storage_options: {why}", option="storage_options")
