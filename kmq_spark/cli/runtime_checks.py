"""Checks of the interpreter, its libraries and Java."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kmq_spark.cli.diagnosis import Check, Status

#: The oldest Java that Spark 4.2 runs on.
OLDEST_JAVA = 17
JAVA_ADVICE = (
    "Spark needs OpenJDK 17 or 21: `apt-get install openjdk-17-jre-headless`, "
    "`conda install openjdk=17` or `brew install openjdk@17`"
)
_PYTHON_MINIMUM = (3, 11)


def check_python() -> Check:
    """Check that the interpreter is new enough."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _PYTHON_MINIMUM:
        return Check("python", "ok", found)
    return Check("python", "fail", found, "kmq needs Python 3.11 or newer")


def check_library(name: str, minimum: tuple[int, ...], *, needed_by: str) -> Check:
    """Check that a library is installed and new enough; only a part of kmq needs Spark's."""
    status: Status = "fail" if needed_by == "kmq" else "warn"
    wanted = ".".join(map(str, minimum))
    install = "kmq-spark" if needed_by == "kmq" else "kmq-spark[spark]"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, status, "not installed", f"`pip install '{install}'`")
    if _numbers(found) >= minimum:
        return Check(name, "ok", found)
    advice = f"{needed_by} needs {name} {wanted} or newer: `pip install -U '{install}'`"
    return Check(name, status, found, advice)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def check_java() -> Check:
    """Check that there is a Java, that it starts, and that Spark runs on it."""
    java = find_java()
    if java is None:
        return Check("java", "warn", "not found", JAVA_ADVICE)
    found = _try_java_version(java)
    if found is None:
        return Check("java", "warn", f"{java} doesn't start", JAVA_ADVICE)
    if found < OLDEST_JAVA:
        return Check("java", "warn", f"{java} is version {found}", JAVA_ADVICE)
    return Check("java", "ok", f"{found} ({java})")


def find_java() -> str | None:
    """Return the java that Spark's start script takes: of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _try_java_version(java: str) -> int | None:
    """Return the major version that this java reports (1.8 is 8); None when it doesn't run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(rb'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def check_worker_python() -> Check:
    """Check that Spark's workers run this interpreter, which has kmq and pyarrow."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    taken = shutil.which(chosen or "python3")
    # `python` and `python3` of one environment are the same; links must not be followed out of it.
    if taken is not None and Path(taken).absolute().parent == Path(sys.executable).parent:
        return Check("PYSPARK_PYTHON", "ok", chosen or f"not set, and python3 is {taken}")
    found = chosen or f"not set, and python3 is {taken or 'not found'}"
    advice = f"before Spark starts: `export PYSPARK_PYTHON={sys.executable}`"
    return Check("PYSPARK_PYTHON", "warn", found, advice)
