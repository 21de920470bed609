"""Replaces, or refuses to do, what the data source API of older Sparks lacks.

Spark 4.2 and later have everything. 4.0 and 4.1 have no read limits and don't keep a stream's first
offset, and 4.0 has no stream writer that takes Arrow.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema

from kmq_storage.errors import IllegalStateError

_STREAMS_SINCE = (4, 2)

#: Arguments of `to_arrow_schema`: older Sparks don't take a time zone, and always use UTC.
IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    ArrowStreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class ArrowStreamWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """Spark 4.0 asks any writer, a stream's too, only whether it takes Arrow."""


def check_streaming_read() -> None:
    """IllegalStateError on a Spark whose streaming reads could lose records."""
    version = pyspark.__version__
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < _STREAMS_SINCE:
        raise IllegalStateError(
            f"Spark {version} can't read a stream from kmq: it asks a source for its first offset "
            "again and again and keeps no answer, so a query could lose records when it starts, "
            "and it knows no limits per trigger. Use Spark 4.2 or later; batch reads and all "
            "writes work here, too"
        )
