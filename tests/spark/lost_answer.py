"""A sink whose commit succeeds while its driver hears of a failure."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.writer import KmqStreamWriter


class LostAnswer(KmqDataSource):
    """kmq over a bad line."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kmq_lost_answer"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer that breaks after its commit."""
        return _BreaksAfterCommit(self._sink(schema, overwrite))


class _BreaksAfterCommit(KmqStreamWriter):
    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        super().commit(messages, batchId)
        raise ConnectionError("the answer was lost")
