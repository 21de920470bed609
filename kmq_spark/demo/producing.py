"""The producer process as its parent sees it: started, killed, started again."""

from __future__ import annotations

import subprocess
import sys

from kmq_spark.demo.folder import Folder
from kmq_storage.errors import UnavailableError


class Producing:
    """One producer process at a time, until all flights are durable."""

    def __init__(self, folder: Folder, topic: str, *, rate: float, limit: int | None) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "kmq_spark.demo.produce", folder.store, topic]
        self._command += ["--rate", str(rate)]
        self._command += ["--limit", str(limit)] if limit else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it goes on where the topic ends."""
        with self._folder.producer_log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """End the process with SIGKILL: no handler, no flush, nothing said."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def finished(self) -> bool:
        """Whether the process has sent everything and ended.

        Raises: UnavailableError when it ended without.
        """
        code = self._process.poll() if self._process else None
        if code:
            log = self._folder.producer_log
            lines = log.read_text(errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line), "it said nothing")
            raise UnavailableError(f"The producer ended with {code}: {reason} (see {log}).")
        return code == 0
