"""The commands that the demo ends with.

Finds: commands that the user's shell doesn't find, and folders that it takes for two words.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.demo.next_steps import next_steps


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command as an installation into `.venv` puts it; nothing of it is on the PATH."""
    script = tmp_path / ".venv" / "bin" / "kmq"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m kmq_spark.cli "$@"\n')
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    return script


def _commands(store: Path) -> list[str]:
    return [line.strip() for line in next_steps(str(store)).splitlines() if "--store" in line]


def test_the_commands_work_as_they_are_typed(script: Path, tmp_path: Path):
    folder = tmp_path / "a store"
    with kmq.open(folder, maintenance=False) as store:
        store.create_topic("delays")
        store.consumer("delays", topics=["delays"]).close()
        with store.producer() as producer:
            producer.send("delays", b"twenty minutes")
    done = [
        subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
        for line in _commands(folder)
    ]
    assert [each.returncode for each in done] == [0, 0, 0], [each.stderr for each in done]
    assert "twenty minutes" in done[-1].stdout


def test_they_are_as_short_as_the_shell_understands(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert _commands(tmp_path / "s")[0] == ".venv/bin/kmq topic list --store s"
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    assert _commands(tmp_path / "s")[0] == "kmq topic list --store s"
    script.unlink()
    assert _commands(tmp_path / "s")[0] == ".venv/bin/python -m kmq_spark.cli topic list --store s"
