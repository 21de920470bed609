"""Delivery numbers: how often a record was handed out, counted again after each new binding.

When a queue unbinds a topic and binds it again, the queue reads it as a new topic: its records are
handed out as if for the first time. Each binding starts its numbers a large step higher, so that no
number is used twice.
"""

from __future__ import annotations

from typing import Any

#: The distance between the first delivery numbers of two successive bindings of a topic.
DELIVERIES_APART = 2**32


def times_of(delivery: Any) -> Any:
    """How often a record was handed out, from its delivery number or an array of these."""
    return delivery % DELIVERIES_APART
