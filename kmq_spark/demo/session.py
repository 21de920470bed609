"""The Spark session of the demo: two cores, no web page, and its log in a file."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kmq_spark.cli.runtime_checks import check_java
from kmq_spark.delta_session import delta_settings
from kmq_spark.demo.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Without this, a query that can't be stopped would keep Ctrl-C waiting forever.
    "spark.sql.streaming.stopTimeout": "10s",
}


def missing_for_spark() -> str | None:
    """What Spark lacks on this machine and how to get it; None when it can run."""
    if find_spec("pyspark") is None:
        return "pyspark isn't installed: pip install 'kmq-spark[spark]'."
    java = check_java()
    return None if java.status == "ok" else f"Java: {java.found}. {java.advice}."


def start_session(folder: Folder, jars: Sequence[Path] = ()) -> SparkSession:
    """Start Spark with its output below `folder`, and with Delta where its jars are given."""
    from pyspark.sql import SparkSession

    # Spark would take the first python3 of the PATH, which may not have kmq installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {**_SETTINGS, "spark.sql.warehouse.dir": str(folder.path / "warehouse")}
    if jars:
        settings |= delta_settings(jars)
    builder = SparkSession.builder.master("local[2]").appName("kmq demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_in(folder.spark_log), _no_orphans():
        return builder.getOrCreate()


@contextmanager
def _no_orphans() -> Iterator[None]:
    """Kill the processes that were started here, should starting them be cut short.

    A JVM that was still starting when Python left it would wait for Python forever.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for child in _children() - before:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise


def _children() -> set[int]:
    """The processes whose parent is this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # State and parent follow the name, which may contain anything and ends at the last ")".
            parent = status.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # the process has ended meanwhile
        if int(parent) == os.getpid():
            found.add(int(status.parent.name))
    return found


@contextmanager
def _stderr_in(file: Path) -> Iterator[None]:
    """Send this process's standard error to a file; a JVM started meanwhile keeps that file.

    Otherwise the JVM's warnings would run through the line that shows the demo's progress.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
