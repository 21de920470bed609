"""Child processes that must end: one that hangs is told with what each of its threads was at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True)
class Child:
    """A Python process, and the file that its errors go to."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def exit_code(self, seconds: float) -> int:
        """Its exit code; AssertionError with its stacks when it does not end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler answers with the stacks
            self.process.wait()
        self.errors.seek(0)
        raise AssertionError(f"a child hangs: {self.errors.read().decode(errors='replace')}")


def start_python(script: str, *arguments: str) -> Child:
    """A process that runs a script."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - `exit_codes` closes it
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-c", script, *arguments]
    return Child(subprocess.Popen(command, stderr=errors, env=environment), errors)


def exit_codes(children: Sequence[Child], seconds: float = 120.0) -> list[int]:
    """Their exit codes, when all have ended; none is left when one hangs."""
    try:
        return [child.exit_code(seconds) for child in children]
    finally:
        for child in children:
            child.process.kill()
            child.process.wait()
            child.errors.close()
