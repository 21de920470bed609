"""The Spark data source `kmq`.

Read `source.py` first, then what it hands out: `batch_reader.py`, `stream_reader.py`,
`table_reader.py` and `writer.py`. What they decide is in packages, each of which says what it
is for; what runs on Spark's executors is in `executor`.
"""

from kmq_spark.datasource.register import register
from kmq_spark.datasource.source import KmqDataSource

__all__ = ["KmqDataSource", "register"]
