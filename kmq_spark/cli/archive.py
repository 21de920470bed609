"""`kmq archive`: topics as a table of files, in Delta or in Parquet, by a Spark of its own."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kmq_spark.cli.command import Command, argument, pair, seconds
from kmq_spark.cli.opening import open_store, store_url
from kmq_spark.cli.output import Output
from kmq_spark.cli.runtime_checks import check_java
from kmq_spark.delta_session import SESSION_SETTINGS
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import KmqError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark prints nothing: what there is to say is printed by kmq.
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "FATAL",  # errors come as exceptions, with the same page of Java
}

#: An error of kmq in what Spark says of it.
_KMQ_ERROR = re.compile(r"^.*\bkmq_storage\.errors\.\w+: (.+)$", re.MULTILINE)


def _archive(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True, storage_options=dict(arguments.storage_option)):
        pass  # an error of the store comes before Spark starts
    spark = _session(with_delta=_format(arguments) != "parquet")
    try:
        while True:
            _run(spark, arguments, output)
            if arguments.watch is None:
                return
            SYSTEM.sleep(arguments.watch)
    finally:
        spark.stop()


def _format(arguments: Namespace) -> str | None:
    """The format of an archive that is there, else the one that was asked for."""
    from kmq_spark.datasource.store_url import beside, storage_options
    from kmq_spark.lake.places import ArchivePlace, fixed
    from kmq_spark.lake.record import ArchiveRecords

    url = store_url(arguments) or ""
    path = beside(fixed(arguments.path), url, dict(arguments.storage_option))
    known = ArchiveRecords(ArchivePlace(path, storage_options(path))).newest()
    return arguments.format if known is None else known.format


def _run(spark: SparkSession, arguments: Namespace, output: Output) -> None:
    from kmq_spark import archive

    url = store_url(arguments)
    assert url is not None, "the store was opened"
    with _one_line_errors():
        report = archive.run(
            spark,
            url,
            arguments.path,
            topics=arguments.topic or (),
            file_format=arguments.format,
            keep=arguments.keep,
            fail_on_data_loss=not arguments.skip_lost,
            storage_options=dict(arguments.storage_option),
        )
    lines = [
        f"{topic}-{partition}: archived up to offset {end}"
        for topic, ends in report.archived.items()
        for partition, end in ends.items()
    ]
    if report.lost:
        lines.append(f"{report.lost} records were gone before they were archived")
    output.fact(dataclasses.asdict(report), "\n".join(lines) or "nothing to archive yet")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Dig kmq's own error out of Spark's, and name the command's option in it.

    What else fails in Spark keeps its traceback: nothing else tells where it failed.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        found = _KMQ_ERROR.findall(str(error))
        if not found:
            raise
        told = found[-1].replace("set failOnDataLoss=false to go", "use --skip-lost to go")
        raise KmqError(told.replace("failOnDataLoss=false", "--skip-lost")) from error


def _session(*, with_delta: bool) -> SparkSession:
    java = check_java()
    if find_spec("pyspark") is None or java.status != "ok":
        raise UnavailableError(
            f"archiving needs Spark: pip install 'kmq-spark[delta]'. Java: {java.found}. "
            f"{java.advice}"
        )
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("kmq archive")
    for name, value in _QUIET.items():
        builder = builder.config(name, value)
    if not os.environ.get("MASTER"):
        builder = builder.master("local[*]")
    if with_delta and find_spec("delta") is not None:
        builder = _with_delta(builder)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UnavailableError(
            "Spark did not start; what it said stands above. With Delta it fetches jars from Maven "
            "Central, unless they are in ~/.ivy2: without a network, use --format parquet for a "
            "new archive"
        ) from error


def _with_delta(builder: SparkSession.Builder) -> SparkSession.Builder:
    from delta import configure_spark_with_delta_pip

    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    return configure_spark_with_delta_pip(builder)


COMMANDS = (
    Command(
        "archive",
        "write topics to Delta or Parquet, exactly once; continues where it stopped",
        _archive,
        (
            argument(
                "path", metavar="PATH", help="folder or URL of the archive; made when missing"
            ),
            argument("--topic", action="append", help="a topic to archive (may be repeated)"),
            argument("--format", choices=("delta", "parquet"), help="format of a new archive"),
            argument(
                "--keep",
                type=seconds,
                metavar="SECONDS",
                help="trim records from the log that are archived and older than this",
            ),
            argument(
                "--skip-lost",
                action="store_true",
                help="continue past records that were lost before they were archived; count them",
            ),
            argument(
                "--storage-option",
                type=pair,
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="an option for the client of the store's bucket (may be repeated)",
            ),
            argument(
                "--watch",
                type=seconds,
                metavar="SECONDS",
                help="archive again after this many seconds",
            ),
        ),
    ),
)
