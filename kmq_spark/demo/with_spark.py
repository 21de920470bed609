"""The second and the third step done by Spark: a streaming query, then a batch job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kmq_spark.demo import archive, delays, delta_jars
from kmq_spark.demo.folder import Folder
from kmq_spark.demo.session import start_session
from kmq_spark.demo.steps import DELAYS, FLIGHTS, GROUP
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


#: After this line, Spark's errors describe the query on a whole page.
_DETAILS = "=== Streaming Query ==="
#: Spark's error when a process that it started took over ten seconds, which no setting prolongs.
_SLOW_START = "Python worker failed to connect back"
#: How often the query is then started again from its checkpoint.
_STARTED_AGAIN = 4


class SparkSteps:
    """A Spark session with the query of `delays` running in it."""

    name = "Spark"

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._format = "parquet"
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._starts_left = _STARTED_AGAIN

    def start(self) -> None:
        """Start Spark, and the query in it."""
        with self._one_line_errors():
            self._start()

    def _start(self) -> None:
        jars = delta_jars.fetch(self._folder.jars)
        self._format = "delta" if jars else "parquet"
        interrupted = signal.getsignal(signal.SIGINT)
        self._spark = start_session(self._folder, jars)
        # Spark's own handler calls the JVM first, and raises another error when that is gone.
        signal.signal(signal.SIGINT, interrupted)
        self._start_query()

    def _start_query(self) -> None:
        assert self._spark is not None
        self._query = delays.start_query(
            self._spark,
            self._folder.store,
            source=FLIGHTS,
            target=DELAYS,
            group=GROUP,
            checkpoint=self._folder.checkpoint,
        )

    def work(self, seconds: float) -> None:
        """Wait while the query works; restart it where Spark was too slow to start a process."""
        assert self._query is not None
        SYSTEM.sleep(seconds)
        if self._query.isActive:
            return
        reason = str(self._query.exception())
        if _SLOW_START not in reason or not self._starts_left:
            raise self._failed("The query stopped", reason)
        self._starts_left -= 1
        with self._one_line_errors():
            self._start_query()

    def archive(self, path: Path) -> archive.Archive:
        """End the query, and archive with a batch job."""
        assert self._query is not None
        assert self._spark is not None
        with self._one_line_errors():
            self._query.stop()
            return archive.write_with_spark(
                self._spark, self._folder.store, FLIGHTS, path=path, file_format=self._format
            )

    def close(self) -> None:
        """Stop the query and Spark."""
        if self._query is not None:
            self._query.stop()
        if self._spark is not None:
            self._spark.stop()

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn Spark's errors, a page of Java each, into one line and the name of the log."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise self._failed("Spark failed", str(error)) from error

    def _failed(self, what: str, reason: str) -> UnavailableError:
        return UnavailableError(f"{what}: {in_one_line(reason)} (see {self._folder.spark_log}).")


def in_one_line(reason: str) -> str:
    """Return the first lines of Spark's error, and the way out where the machine was too busy."""
    said = " ".join(reason.partition(_DETAILS)[0].split("\n")[:2]).strip()
    if _SLOW_START not in said:
        return said
    return f"{said} Spark waits 10 s for a process that it starts: run the demo on a calmer machine"
