"""Members of groups that a test has in its hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kmq_spark.client.consuming.member_watch import MemberWatch


@contextmanager
def without_watch() -> Iterator[None]:
    """Those made meanwhile don't look around by themselves, so that a test says when they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberWatch, "_run", lambda watch: None)
        yield
