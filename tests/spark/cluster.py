"""A cluster of Spark's own kind on the loopback: a master and workers with an address each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.support.s3 import free_port

_HOME = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))


_WORKERS = 2


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and its workers, of one core each; the address of the master.

    Spark runs the second attempt of a slow task on another host only, so each worker is one.
    """
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        for number in range(_WORKERS + 1):
            host = f"127.0.0.{number + 1}"
            if number:
                own = ["worker.Worker", "--cores", "1", "--memory", "512m", master]
            else:
                own = ["master.Master", "--port", str(port)]
            running.enter_context(_daemon(folder / host, host, own))
        yield master


@contextmanager
def _daemon(folder: Path, host: str, command: list[str]) -> Iterator[None]:
    folder.mkdir()
    name, *more = command
    program = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    options = ["--host", host, "--webui-port", "0"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "SPARK_DAEMON_MEMORY": "128m",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts, and little more
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(folder),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*program, *options, *more], env=environment, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()
