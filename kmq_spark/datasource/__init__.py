"""The Spark data source `kmq`: the only package that imports pyspark.

Read `source.py` first, then `batch_reader.py`, `stream_reader.py` and `writer.py`; what they
decide stands in pure modules beside them.
"""

from kmq_spark.datasource.register import register
from kmq_spark.datasource.source import KmqDataSource

__all__ = ["KmqDataSource", "register"]
