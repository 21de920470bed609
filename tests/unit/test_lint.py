"""The linter and the type checker are part of the tests, so that one command checks all."""

from __future__ import annotations

import subprocess
import sys

from tests.support.sources import ROOT


def _run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_ruff_finds_nothing():
    assert _run("ruff", "check", ".") == ""


def test_code_is_formatted():
    assert _run("ruff", "format", "--check", ".") == ""


def test_mypy_finds_nothing():
    assert _run("mypy") == ""
