"""Following the commits in a bucket: one replica per handle, read object by object.

The follower requests the object of the next LSN. If it exists, its commit is applied; if not, the
log ends there. One thread requests at a time, and the others share its result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import CorruptionError
from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry
from kmq_storage.log.bucket.collected import Moment, collected_lsn, is_recent
from kmq_storage.log.bucket.commit_objects import CommitObject, CommitObjects, follows
from kmq_storage.log.bucket.contention import Tail, Writers
from kmq_storage.log.checkpoints.checkpoint import checkpoints, newest_checkpoint
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.log_time import LogTime
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import LogDamage
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.waking import Sleepers

#: After this many commits in a row, several are fetched at once.
_ONE_BY_ONE = 4
_AHEAD_MAX = 32
#: How often a missing commit is requested again before it counts as lost, when later ones exist.
_LOOKS_FOR_MISSING = 3


class Follower:
    """A state, and the cursor up to which its commits were read."""

    def __init__(
        self,
        files: BucketFiles,
        objects: CommitObjects,
        environment: Environment,
    ) -> None:
        self._files = files
        self._objects = objects
        self._environment = environment
        self.time = LogTime(environment)
        #: Held while state and cursor change.
        self.changing = threading.RLock()
        #: Threads that wait for the next commit.
        self.sleepers = Sleepers()
        self._looking = threading.Lock()
        self._looks_begun = self._last_look = 0
        #: When the last commit came, or this handle was opened; monotonic seconds.
        self.news_at = environment.monotonic()
        #: False while a commit is being applied; if it stays False, an interruption came between.
        self._whole = True
        #: When it was last certain that no commit after the cursor was deleted.
        self._known_since: Moment | None = None
        #: The LSN of the last commit that contradicted commits read before.
        self._denied = 0
        self._begin()

    def _begin(self) -> None:
        """Begin at the newest checkpoint, or at the first commit when there is none."""
        began = Moment.now(self._environment)
        due = began.monotonic + limits.REBASE_SECONDS  # from before the reading
        found = newest_checkpoint(self._files)
        with self.changing:
            self._whole = False
            if found is None:
                self.state, self.cursor = StoreState(Manifest(self._files, ())), Cursor()
            else:
                self.state, self.cursor = found.state(self._files, indexed=True), found.cursor
            self.state.rebase_time = due
            self._known_since, self._begun = None, began
            self._end_proven = False
            self._writers = Writers()
            self._whole = True

    def begin_anew(self) -> None:
        """Begin at the newest checkpoint, because files of this state were collected."""
        with self._looking:
            self._begin()

    def settle(self) -> None:
        """Begin anew if an interruption left a half applied commit."""
        with self.changing:
            if not self._whole:
                self._begin()

    @property
    def is_sure(self) -> bool:
        """Whether it is ruled out that the next name is free because its commit was deleted."""
        return is_recent(self._known_since, self._environment)

    def is_fresh(self) -> bool:
        """Whether the log's end was seen less than `limits.FRESH_SECONDS` ago."""
        since = self._known_since
        now = Moment.now(self._environment)
        return self._whole and since is not None and since.seconds_to(now) < limits.FRESH_SECONDS

    def advance(self, expected: int = 1) -> None:
        """Apply every new commit; when there is none, this takes one request.

        If `expected` is above 1 and the last of these commits exists, all are fetched at once.
        """
        wanted = self._looks_begun + 1
        with self._looking:
            if self._last_look >= wanted:
                return  # another thread looked after this call began
            self._looks_begun += 1
            self._look(self._fetch_expected(expected))
            self._last_look = self._looks_begun

    def step(self) -> None:
        """Apply only the next commit, if it exists: one request."""
        with self._looking:
            self._look(0, most=1)

    def _fetch_expected(self, count: int) -> int:
        """Begin to fetch the next `count` commits if the last one exists; returns how many."""
        count = min(count, _AHEAD_MAX)
        if count <= 1 or not self._objects.exists(self.cursor.lsn + count):
            return 0
        self._objects.fetch_ahead(self.cursor.lsn + 1, count - 1)
        return count

    def _look(self, coming: int, most: int | None = None) -> None:
        self.settle()
        self.state.broken = None
        hits = -coming
        while True:
            cursor, since = self.cursor, Moment.now(self._environment)
            found, reason = self._try_fetch(cursor)
            if self._was_collected() or self.cursor is not cursor:
                continue  # begun anew, or this process made a commit
            if reason:
                if not self._pass_over(cursor, reason):
                    return
            elif found is not None:
                if self._take_over(found):
                    hits += 1
                    self._fetch_ahead(hits)
                else:
                    most = None  # begun anew: read everything that was known before
                if hits == most:
                    return
            elif self._is_end(cursor):
                self._known_since = since
                return

    def _take_over(self, found: CommitObject) -> bool:
        """Apply a commit; when it contradicts commits read before, begin anew and return False.

        A repair may give up commits that this handle could read and the repair could not. The
        handle must then forget them as well. It begins anew only once for each such commit.
        """
        entries, is_new = found.entries(), self._denied != found.end.lsn
        try:
            if not (is_new and _gives_up_known(self.state, entries)):
                self.applied(found.end, entries, found.header.nonce)
                return True
        except CorruptionError:
            if not is_new:
                raise
        self._denied = found.end.lsn
        with self._files.afresh():  # use no cached objects of the commits that were given up
            self._begin()
        return False

    def _try_fetch(self, cursor: Cursor) -> tuple[CommitObject | None, str]:
        """The commit after the cursor, or None if it doesn't exist, or the reason if it is bad."""
        try:
            found = self._objects.fetch(cursor.lsn + 1)
        except InvalidFrameError as error:
            return None, str(error)
        if found is not None and not follows(found.header, cursor.chain):
            return None, "the commit does not follow its predecessor"
        return found, ""

    def _fetch_ahead(self, hits: int) -> None:
        """Begin to fetch many commits at once after many were found in a row."""
        if hits >= _ONE_BY_ONE and hits % _ONE_BY_ONE == 0:
            self._objects.fetch_ahead(self.cursor.lsn + 1, min(hits // 2, _AHEAD_MAX))

    def _was_collected(self) -> bool:
        """Begin anew if the next commits may have been collected; returns whether it did.

        This costs requests, unless it was ruled out a short time ago.
        """
        if self.is_sure:
            return False
        since = Moment.now(self._environment)
        collected = collected_lsn(self._files)
        if collected <= self.cursor.lsn and not self._went_on():
            self._known_since = since
            return False
        self._begin()
        if self.cursor.lsn < collected:
            raise CorruptionError(
                f"the log of store {self._files.url} begins after commit {collected}, and no "
                "checkpoint that goes as far can be read; put it back from a copy, or have one "
                "made by `kmq repair --drop-damaged`",
                url=self._files.url,
                file=paths.CHECKPOINT_FOLDER,
                lsn=collected,
            )
        return True

    def _went_on(self) -> bool:
        """Whether a checkpoint tells of later commits, in case marks of collection were lost."""
        if is_recent(self._begun, self._environment):
            return False  # this handle has just begun at the newest one
        return any(lsn > self.cursor.lsn for lsn, _ in checkpoints(self._files))

    def _is_end(self, cursor: Cursor) -> bool:
        """Whether the log ends at the cursor, where the next commit doesn't exist.

        A bucket that acknowledges a write and loses it leaves a hole. So later commits are searched
        for, once per handle. If there are any, the end is broken: nothing is read or written behind
        the hole, because a writer that does not know of it could fill it.
        """
        if self._end_proven:
            return True
        lsn = cursor.lsn + 1
        later = self._first_beyond(lsn)
        if later is not None:
            for _ in range(_LOOKS_FOR_MISSING):
                if self._try_fetch(cursor) != (None, ""):
                    return False  # written meanwhile
                self._environment.sleep(limits.FOLLOW_PAUSE_FIRST)
            reason = "it is missing, and what followed is there"
            self.state.broken = LogDamage(paths.commit_object(lsn), reason, lsn, later - 1)
        self._end_proven = later is None
        return True

    def _first_beyond(self, lsn: int) -> int | None:
        """The LSN of the first existing object after this one, damaged or not, or None.

        When even the first commit is missing, files with records tell that there were commits.
        """
        later = next(self._objects.later_than(lsn), None)
        if later is None and lsn == 1:
            files = chain(*map(self._files.walk, (paths.SEGMENT_FOLDER, paths.STAGED_FOLDER)))
            later = 2 if next(files, None) else None
        return later

    def _next_proven(self, lsn: int) -> CommitObject | None:
        """The first valid commit after this LSN: the next one, or a later one of the listing."""
        for later in chain([lsn + 1], self._objects.later_than(lsn)):
            with suppress(InvalidFrameError):
                found = self._objects.fetch(later)
                if found is not None:
                    return found
        return None

    def _pass_over(self, cursor: Cursor, reason: str) -> bool:
        """Skip damaged commits if a later one is valid; otherwise the state's end is broken."""
        lsn, later = cursor.lsn + 1, self._next_proven(cursor.lsn + 1)
        file = paths.commit_object(lsn)
        if later is None:
            self.state.broken = LogDamage(file, reason, lsn, lsn)
            return False
        before = later.header.lsn - 1
        with self.changing:
            self._whole = False
            self.state.note_damage(LogDamage(file, reason, lsn, before))
            self.cursor = Cursor(before, later.header.previous, cursor.time)
            self._whole = True
        return True

    @property
    def tail(self) -> Tail:
        """The end of the log as it was read, with its recent writers."""
        with self.changing:
            return self._writers.tail(self.cursor.lsn, self.cursor.time)

    def applied(self, end: Cursor, entries: list[Entry], nonce: bytes) -> None:
        """Apply a commit that was read, or that this process wrote itself."""
        with self.changing:
            self.settle()
            if end.lsn != self.cursor.lsn + 1:
                return  # another thread was faster
            self._whole = False
            self.state.apply(end.lsn, end.time, entries, file=end.lsn, position=0)
            self.cursor, self._whole = end, True
            self._writers.note(end.lsn, nonce[8:])
            self.news_at = self._environment.monotonic()
            self.sleepers.wake()

    def note_end(self, since: Moment) -> None:
        """Note that the next name was free at this moment, when this process made a commit."""
        self._known_since = since


def _gives_up_known(state: StoreState, entries: Sequence[Entry]) -> bool:
    """Whether a repair gives up offsets, knowing no records there, where a state has records."""
    if any(isinstance(entry, SegmentEntry) for entry in entries):
        return False  # a segment holds the records that are left
    return any(
        isinstance(entry, GapEntry) and not entry.rows and _has_records(state, entry)
        for entry in entries
    )


def _has_records(state: StoreState, gap: GapEntry) -> bool:
    topic = state.topic_by_id(gap.topic_id)
    if topic is None or gap.partition >= topic.partitions:
        return False
    start = max(gap.start, topic.parts[gap.partition].start)
    rows = topic.index(gap.partition).rows(start, gap.end) if start < gap.end else ()
    return any(True for _ in rows)
