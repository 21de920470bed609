"""The background of a member: it shows that it lives, watches the others, and calls it in."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

from kmq_spark.errors import ClosedError, KmqError
from kmq_storage.groups.membership import SharedMembership, Version
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)
_LEAVE_SECONDS = 10.0


class Watched(Protocol):
    """What the watch sees of its consumer."""

    def activity(self) -> tuple[object, int] | None:
        """Another object, or number, after every poll; None while one waits."""

    def look_for(self, version: Version) -> None:
        """Make the next call look at the group, unless it saw this version already."""


class MemberWatch:
    """A thread beside a consumer that is a member; it ends with the consumer."""

    def __init__(self, watched: Watched, place: SharedMembership, max_poll_interval: float) -> None:
        #: Weak: a consumer that is garbage leaves its group.
        self._watched = weakref.ref(watched)
        self._place = place
        self._patience = max_poll_interval
        self._monotonic = place.environment.monotonic
        self._active: tuple[object, int] | None = None
        self._since = self._monotonic()
        self._stop = Flag()
        self._thread = threading.Thread(target=self._run, name="kmq-member", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_LEAVE_SECONDS)

    def leave(self) -> None:
        """Stop watching, and leave the group."""
        self.end()
        self._place.leave()

    def _run(self) -> None:
        while not self._stop.wait(min(self._place.step, self._patience)):
            watched = self._watched()
            try:
                if watched is None:
                    self._place.leave()
                    return
                self.look(watched)
            except ClosedError:
                return
            except (KmqError, OSError) as error:
                _LOGGER.debug("a group's member could not look around: %s", error)
            del watched

    def look(self, watched: Watched) -> None:
        """One look, of many."""
        self._place.beat()
        self._place.look_around()
        if self._is_overdue(watched.activity()):
            self._place.step_back()
        watched.look_for(self._place.version())

    def _is_overdue(self, activity: tuple[object, int] | None) -> bool:
        now = self._monotonic()
        last = self._active
        if activity is None or last is None or activity[0] is not last[0] or activity != last:
            self._active, self._since = activity, now
        return now - self._since > self._patience
