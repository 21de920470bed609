"""Lets Spark find the format "kmq": it takes DefaultSource from top-level modules named pyspark_*.

If one such module fails at import, Spark finds none of the others. So this one lets no error out.
"""

import logging

try:
    from kmq_spark.datasource import KmqDataSource
except Exception:  # whatever is missing here, sources of other packages must still be found
    logging.getLogger(__name__).warning("the format 'kmq' can't be loaded", exc_info=True)
else:
    DefaultSource = KmqDataSource
