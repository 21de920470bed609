"""Arguments and streams at their edges end with the exit code that is promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kmq_spark as kmq


def _kmq(folder: Path, words: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a shell runs it, on a store of this folder."""
    command = f"{sys.executable} -m kmq_spark.cli {words} --store {folder}/store"
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        "log --max -1",
        "produce t --separator ''",
        "maintain --interval nan",
        "maintain --interval -1",
    ],
)
def test_a_number_or_text_that_makes_no_sense_is_wrong_usage(tmp_path: Path, words: str):
    done = _kmq(tmp_path, words)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False)


def test_what_is_no_utf8_is_stored_as_it_was_typed(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    done = _kmq(tmp_path, r"produce t $'\xff\xfe' --key $'\xfd'")
    assert (done.returncode, done.stderr) == (0, b"")
    with kmq.open(tmp_path / "store") as store, store.consumer(topics=["t"]) as consumer:
        (record,) = consumer.consume(1)
    assert (record.key, record.value) == (b"\xfd", b"\xff\xfe")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-"])
def test_a_closed_stream_is_as_one_that_leads_nowhere(tmp_path: Path, closed: str):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    words = "produce t" if closed == "<&-" else "topic list"
    command = f"{sys.executable} -m kmq_spark.cli {words} --store {tmp_path}/store {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
