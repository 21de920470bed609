"""Systems without Linux's own calls, such as macOS; real ones were not tried.

Finds: a call that only Linux has and that every store needs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq

pytestmark = pytest.mark.e2e

PROGRAM = Path(__file__).with_name("bare_unix.py")


def test_a_store_works_where_the_system_has_no_call_that_only_linux_has(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        if it.stdout.readline() == "waiting\n":
            with kmq.open(tmp_path / "store") as store, store.producer() as producer:
                producer.send("t", b"from Linux")
        errors = it.communicate(timeout=100)[1]
    assert (it.returncode, errors) == (0, "")
