"""Lets Spark find the format "kmq": it takes DefaultSource from top-level modules named pyspark_*.

One such module that fails at import disables the lookup for all of them, so this one gives way.
"""

import logging

try:
    from kmq_spark.datasource import KmqDataSource
except Exception:  # whatever is missing here, other people's sources must stay visible
    logging.getLogger(__name__).warning("the format 'kmq' can't be loaded", exc_info=True)
else:
    DefaultSource = KmqDataSource
