"""The modules of `kmq_spark` as users name them, and as Python runs them.

Finds: a module that has to be imported by itself, or can't be run.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import kmq_spark


def _python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_for_users_need_no_import_of_their_own():
    names = "kmq.aio.open, kmq.v2.KmqBroker, kmq.openmessaging.KeyValue"
    _python("-c", f"import kmq_spark as kmq; {names}")


@pytest.mark.parametrize("module", ["kmq_spark", "kmq_spark.cli"])
def test_the_command_runs_as_a_module(module: str):
    assert _python("-m", module, "--version") == f"kmq {kmq_spark.__version__}\n"
