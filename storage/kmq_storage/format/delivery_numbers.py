"""The number of a delivery: how often a record was handed out, and which first time that goes by.

A topic that a queue unbinds and binds again is read as a new one, so its records are handed out as
if for the first time. Numbers go up by a large step each time, so that none comes again.
"""

from __future__ import annotations

from typing import Any

#: How far the first deliveries stand apart, from one time that a topic is unbound to the next.
DELIVERIES_APART = 2**32


def times_of(delivery: Any) -> Any:
    """How often a record was handed out, by the number of its delivery, or an array of them."""
    return delivery % DELIVERIES_APART
