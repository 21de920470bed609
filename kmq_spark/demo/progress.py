"""The output while the demo works: lines that stay, and one that changes."""

from __future__ import annotations

import shutil
from typing import TextIO

from kmq_storage.environment import SYSTEM, Environment

#: Seconds between two lines where the output is a file or a pipe, and can't be overwritten.
LOG_INTERVAL = 2.0


class Progress:
    """Writes the demo's lines to a terminal, or to a log."""

    def __init__(self, target: TextIO, *, total: int, environment: Environment = SYSTEM) -> None:
        self._target = target
        #: How many flights there are in all.
        self.total = total
        self._environment = environment
        self._live = target.isatty()
        self._next_line = 0.0

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._target.write(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")
        self._target.flush()

    def show(self, produced: int, processed: int, producer: str) -> None:
        """Show how far the work is, in place of what was shown before."""
        lag = produced - processed
        line = f"produced {produced:,}/{self.total:,} | processed {processed:,} | lag {lag:,}"
        line += f" | {producer}"
        if self._live:
            # A line that wraps could not be overwritten.
            width = shutil.get_terminal_size().columns - 1
            self._target.write(f"\r\x1b[K{line[:width]}")
            self._target.flush()
        elif self._environment.monotonic() >= self._next_line:
            self._next_line = self._environment.monotonic() + LOG_INTERVAL
            self.say(line)
