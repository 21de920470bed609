"""Archiving: topics as a table of files, in Delta or in Parquet, beside the log they came from.

`run` archives what there is, `start` goes on for ever; `spark.read.format("kmq")` with option
`archive` reads the archive and the log as one.
"""

from kmq_spark.archive.job import ArchiveReport, run, start
from kmq_spark.archive.trimming import trim_archived

__all__ = ["ArchiveReport", "run", "start", "trim_archived"]
