"""Where an archive is, for readers of its files: a folder, or a prefix in a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kmq_storage.objects.file_io import sync_file_system
from kmq_storage.objects.files import Files
from kmq_storage.objects.obstore_bucket import SCHEMES, client_of
from kmq_storage.objects.open import open_files
from kmq_storage.objects.storage_options import option_text
from kmq_storage.objects.urls import absolute

#: Options that only kmq's own client of a bucket has.
_OWN_OPTIONS = ("cache_bytes", "cache_folder", "cache_folder_bytes")


def fixed(path: str | os.PathLike[str]) -> str:
    """The path or URL of an archive; a relative path is fixed now, `file:` is left out."""
    return absolute(os.fspath(path).rstrip("/")).removeprefix("file://")


@dataclass(frozen=True)
class ArchivePlace:
    """The place of an archive, with the options of its bucket's client."""

    url: str
    storage_options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def in_bucket(self) -> bool:
        """Whether it is in a bucket, whose names have no parts."""
        return self.url.partition("://")[0] in SCHEMES

    def folder(self, name: str) -> Files:
        """One of kmq's own folders in it."""
        return open_files(f"{self.url}/{name}", storage_options=self.storage_options)

    def sync(self) -> None:
        """Return when what Spark wrote to this folder survives a power cut.

        Spark syncs nothing, so this does. A bucket needs nothing.
        """
        if "://" not in self.url:
            sync_file_system(self.url)

    def file_system(self) -> tuple[Any, str]:
        """Return the file system of the place, and the path in it."""
        scheme, _, path = self.url.partition("://")
        if not self.in_bucket:
            import fsspec

            return fsspec.core.url_to_fs(self.url)  # type: ignore[no-any-return]
        from obstore.fsspec import FsspecStore  # the extra `cloud`

        open_system: Callable[..., Any] = FsspecStore  # the options differ by scheme
        given, client = client_of(self._shared_options())
        return open_system(scheme, client_options=client, **given), path

    def delta_options(self) -> dict[str, str]:
        """Return the client's options for delta-rs, which has the same names as obstore."""
        given, client = client_of(self._shared_options())
        return {name: option_text(value) for name, value in {**given, **client}.items()}

    def _shared_options(self) -> dict[str, str]:
        return {n: value for n, value in self.storage_options.items() if n not in _OWN_OPTIONS}
