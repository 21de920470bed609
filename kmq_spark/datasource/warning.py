"""Warnings that are logged once per process, however often a stream comes past them."""

from __future__ import annotations

import logging
from functools import lru_cache

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Log a warning that a stream would repeat at every look, several times per second."""
    _log.warning("%s", message)
