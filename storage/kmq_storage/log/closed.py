"""What stands in a closed handle for all that it gave back."""

from __future__ import annotations

from typing import Any

from kmq_storage.errors import ClosedError


class Closed:
    """Whoever asks it for anything gets ClosedError."""

    def __getattr__(self, name: str) -> Any:
        raise ClosedError("the store is closed")
