"""The URL of a store, with the options of its client: they travel from the driver to every task.

Options `storage.<name>` are the `storage_options` of `kmq.open`. They travel as an attribute of the
URL. Its text and repr, and so plans, logs and errors, have the URL alone and show no credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from kmq_storage.objects.storage_options import option_text

_PREFIX = "storage."


class StoreUrl(str):
    """The URL of a store; equal to its text."""

    __slots__ = ("storage_options",)
    storage_options: Mapping[str, Any]

    def __new__(cls, url: str, storage_options: Mapping[str, Any]) -> Self:
        """Make a URL with the options of its client."""
        self = super().__new__(cls, url)
        self.storage_options = dict(storage_options)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the options when it is pickled for a task."""
        return StoreUrl, (str(self), self.storage_options)


def is_storage_option(name: str) -> bool:
    """Whether an option, in lower case, is for the client of the store's bucket."""
    return name.startswith(_PREFIX) and name != _PREFIX


def with_storage_options(url: str, given: Mapping[str, str]) -> StoreUrl:
    """The URL with what the options of a read or write say about its client."""
    names = filter(is_storage_option, given)
    return StoreUrl(url, {name.removeprefix(_PREFIX): given[name] for name in names})


def as_options(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return a client's options as those of a read or write."""
    return {f"{_PREFIX}{name}": option_text(value) for name, value in storage_options.items()}


def beside(url: str, store: str, storage_options: Mapping[str, Any]) -> str:
    """Return a URL with the client options of a store, if it has the same scheme as the store."""
    alike = url.partition("://")[0] == store.partition("://")[0]
    return StoreUrl(url, storage_options) if alike else url


def storage_options(url: str) -> Mapping[str, Any]:
    """The options that came with a URL."""
    return url.storage_options if isinstance(url, StoreUrl) else {}
