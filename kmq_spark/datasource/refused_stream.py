"""The reader of a stream that is refused: it raises the reason when Spark first calls it."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from kmq_storage.errors import KmqError


class RefusedStream(DataSourceStreamReader):
    """Raises the same error, whatever Spark calls."""

    def __init__(self, refusal: KmqError) -> None:
        self._refusal = refusal

    def initialOffset(self) -> dict[str, Any]:
        """Raise it."""
        raise self._refusal

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, Any]:
        """Raise it."""
        raise self._refusal

    def getDefaultReadLimit(self) -> NoReturn:
        """Raise it."""
        raise self._refusal

    def partitions(self, start: object, end: object) -> NoReturn:
        """Raise it."""
        raise self._refusal

    def read(self, partition: object) -> NoReturn:
        """Raise it."""
        raise self._refusal
