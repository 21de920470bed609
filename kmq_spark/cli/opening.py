"""How a command opens its store."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

import kmq_spark as kmq
from kmq_spark.cli.command import UsageError


def store_url(arguments: Namespace) -> str | None:
    """Return the store of --store, or else of KMQ_STORE."""
    return arguments.store or os.environ.get("KMQ_STORE") or None


def open_store(arguments: Namespace, *, create: bool = False, **options: Any) -> kmq.Store:
    """Open the store of --store or KMQ_STORE; only commands that write may create one."""
    url = store_url(arguments)
    if url is None:
        raise UsageError("which store? Say --store URL, or set KMQ_STORE")
    return kmq.open(url, create=create, **options)
