"""The reader of a stream that is refused: it raises the reason when Spark first calls it."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from kmq_storage.errors import KmqError


class RefusedStream(DataSourceStreamReader):
    """Raises the same error, whatever Spark calls."""

    def __init__(self, refusal: KmqError) -> None:
        self._refusal = refusal

    def _refuse(self, *_given: Any, **_named: Any) -> NoReturn:
        raise self._refusal

    initialOffset = latestOffset = getDefaultReadLimit = partitions = read = _refuse  # noqa: N815
