"""The errors of kmq, for `except kmq_spark.errors.NotFoundError` and friends."""

from kmq_storage.errors import *  # noqa: F403 - what `__all__` names there, and nothing else
from kmq_storage.errors import __all__ as __all__  # noqa: PLC0414 - this module shows no more
