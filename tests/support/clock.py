"""The system's time, which a test can put forward: so none hurries, or waits for long."""

from __future__ import annotations

from dataclasses import replace

from kmq_storage.environment import SYSTEM, Environment


class Clock:
    """The system's clock, ahead of itself by as much as was passed."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    @property
    def environment(self) -> Environment:
        """The system with this clock."""
        return replace(SYSTEM, now_ns=self._now_ns)

    def _now_ns(self) -> int:
        return SYSTEM.now_ns() + self._ahead_ns

    def pass_seconds(self, seconds: float) -> None:
        """So much time is over at once."""
        self._ahead_ns += round(seconds * 1e9)
