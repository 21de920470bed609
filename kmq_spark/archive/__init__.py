"""Archives: topics as a table of files, in Delta or Parquet, beside the log they came from.

`run` archives what there is now, `start` goes on for ever. `spark.read.format("kmq")` with option
`archive` reads archive and log as one.
"""

from kmq_spark.archive.job import ArchiveReport, run, start
from kmq_spark.archive.trimming import trim_archived

__all__ = ["ArchiveReport", "run", "start", "trim_archived"]
