"""A StreamingQueryListener for queries that read kmq: `spark.streams.addListener(KmqListener())`.

It loads pyspark; `import kmq_spark` does not load it.
"""

from kmq_spark.datasource.groups.lag import Behind
from kmq_spark.datasource.groups.listener import KmqListener, QueryReport

__all__ = ["Behind", "KmqListener", "QueryReport"]
