"""Fetches the peers' jars with Maven, once, into a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent


def cache() -> Path:
    """The folder for jars and scratch data: KMQ_BENCH_CACHE, or one in the home folder."""
    return Path(os.environ.get("KMQ_BENCH_CACHE", Path.home() / ".cache" / "kmq-bench")).resolve()


def broker_jars() -> list[str]:
    """The class path of a Kafka broker."""
    return _fetch("broker.pom.xml", cache() / "kafka-libs")


def spark_jars() -> list[str]:
    """Delta and the Kafka connector for Spark."""
    return _fetch("spark.pom.xml", cache() / "spark-jars")


def obstacle() -> str | None:
    """Why the peers can't be had on this machine, or None."""
    if find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed (pip install confluent-kafka)"
    if all((cache() / name).is_dir() for name in ("kafka-libs", "spark-jars")):
        return None
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found" if missing else None


def _fetch(pom: str, folder: Path) -> list[str]:
    if not folder.is_dir():
        # Into a folder beside it first, so that a download that broke off is not taken for whole.
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
        subprocess.run(["mvn", "-B", "-q", "-f", str(HERE / pom), *copy], check=True)
        partial.rename(folder)
    return sorted(str(jar) for jar in folder.glob("*.jar"))
