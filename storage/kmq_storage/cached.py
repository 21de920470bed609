"""Properties that are computed once, without a lock that a fork may leave taken for ever.

Until Python 3.12, `functools.cached_property` holds a lock per property, for all objects, while one
is computed. In a child that was forked just then, nobody ever releases it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: PLC0414 - it is exported
else:

    class cached_property(functools.cached_property):  # noqa: N801 - as functools has it
        """Computed at the first look; threads that look at the same time may each compute it."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
