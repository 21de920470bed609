"""What tests of several commands get."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kmq_spark.cli import main


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command on the store of fixture `url`, and gives what it printed."""

    def run_command(*words: str) -> str:
        assert main([*words, "--store", url]) == 0
        return capsys.readouterr().out

    return run_command
