"""What a disk of the tests answers where others fetch, keep or share files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext


class NothingFetched:
    """Files are looked at where they are; the folder has no other use."""

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        return False

    def foreign_file(self) -> None:
        pass

    def forget(self, path: str) -> bool:
        return False

    def afresh(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bucket_facts(self) -> None:
        pass
