"""Following the commits of a bucket: one replica per handle, read object by object.

The next name is asked for; what is there is applied, what is missing is the log's end. One
thread asks at a time, the others share its answer.
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
from kmq_storage.log.checkpoint import checkpoints, newest_checkpoint
from kmq_storage.log.collected import Moment, collected_lsn, is_recent
from kmq_storage.log.commit_objects import CommitObject, CommitObjects, follows
from kmq_storage.log.contention import Tail, Writers
from kmq_storage.log.journal import Cursor
from kmq_storage.log.manifest import Manifest
from kmq_storage.log.state import StoreState
from kmq_storage.model import LogDamage
from kmq_storage.objects.bucket_files import BucketFiles

#: After this many commits in a row more are fetched at once.
_ONE_BY_ONE = 4
_AHEAD_MAX = 32
#: A missing commit with later ones behind it is asked for again before it counts as lost.
_LOOKS_FOR_MISSING = 3


class Follower:
    """A state and the place in the log up to which it has read."""

    def __init__(
        self,
        files: BucketFiles,
        objects: CommitObjects,
        environment: Environment,
    ) -> None:
        self._files = files
        self._objects = objects
        self._environment = environment
        #: Held while state and cursor change; told whenever they did.
        self.changed = threading.Condition(threading.RLock())
        self._looking = threading.Lock()
        self._looks_begun = self._last_look = 0
        #: When the last commit came, or this handle was opened; monotonic seconds.
        self.news_at = environment.monotonic()
        #: Whether all that was begun to be applied is: an interruption may come in between.
        self._whole = True
        #: When it was last known that nothing after the cursor was deleted.
        self._known_since: Moment | None = None
        #: The last commit that denied what was read before it.
        self._denied = 0
        self._begin()

    def _begin(self) -> None:
        """Begin at the newest checkpoint, or where the log begins."""
        began = Moment.now(self._environment)
        due = began.monotonic + limits.REBASE_SECONDS  # however long this takes
        found = newest_checkpoint(self._files)
        with self.changed:
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
        """Forget everything that was read: files that it names were collected."""
        with self._looking:
            self._begin()

    def settle(self) -> None:
        """Begin anew if an interruption left a commit that is applied in part."""
        with self.changed:
            if not self._whole:
                self._begin()

    @property
    def is_sure(self) -> bool:
        """Whether the next name can't be free because its commit was deleted."""
        return is_recent(self._known_since, self._environment)

    def is_fresh(self) -> bool:
        """Whether the log's end was seen a moment ago."""
        since = self._known_since
        now = Moment.now(self._environment)
        return self._whole and since is not None and since.seconds_to(now) < limits.FRESH_SECONDS

    def advance(self, expected: int = 1) -> None:
        """Apply every commit that is there; one request when there is nothing new.

        With more than one expected, so many are asked for at once if the last of them is there.
        """
        wanted = self._looks_begun + 1
        with self._looking:
            if self._last_look >= wanted:
                return  # another thread looked after this call began
            self._looks_begun += 1
            self._look(self._fetch_expected(expected))
            self._last_look = self._looks_begun

    def step(self) -> None:
        """Apply the next commit if it is there, and look no further: one request."""
        with self._looking:
            self._look(0, most=1)

    def _fetch_expected(self, count: int) -> int:
        """How many of the next commits are on their way now: so many, or none."""
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
                continue  # begun anew, or moved on by this process's own commit
            if reason:
                if not self._pass_over(cursor, reason):
                    return
            elif found is not None:
                if self._take_over(found):
                    hits += 1
                    self._fetch_ahead(hits)
                else:
                    most = None  # what was known comes back before anybody looks at it
                if hits == most:
                    return
            elif self._is_end(cursor):
                self._known_since = since
                return

    def _take_over(self, found: CommitObject) -> bool:
        """Apply a commit; False when it denies what was read before: then this begins anew, once.

        A repair gave up commits that were read here, and nobody else could tell what they did.
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
        with self._files.afresh():  # nor does what was kept of them count
            self._begin()
        return False

    def _try_fetch(self, cursor: Cursor) -> tuple[CommitObject | None, str]:
        """The commit after the cursor if it is there, or what is wrong with it."""
        try:
            found = self._objects.fetch(cursor.lsn + 1)
        except InvalidFrameError as error:
            return None, str(error)
        if found is not None and not follows(found.header, cursor.chain):
            return None, "the commit does not follow its predecessor"
        return found, ""

    def _fetch_ahead(self, hits: int) -> None:
        """Far behind, have many commits on their way at once."""
        if hits >= _ONE_BY_ONE and hits % _ONE_BY_ONE == 0:
            self._objects.fetch_ahead(self.cursor.lsn + 1, min(hits // 2, _AHEAD_MAX))

    def _was_collected(self) -> bool:
        """Whether the commits asked for may be gone, unless that is ruled out; then start over."""
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
        """Whether a checkpoint tells of later commits, though no mark does: marks may be lost."""
        if is_recent(self._begun, self._environment):
            return False  # this handle began at the newest one
        return any(lsn > self.cursor.lsn for lsn, _ in checkpoints(self._files))

    def _is_end(self, cursor: Cursor) -> bool:
        """Whether no later commit is there either; looked up once per handle.

        A store that says yes to a write and loses it leaves a hole. Nothing is read or written
        behind it: who does not know of the hole may fill it.
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
        """The next commit behind this name that there is, damaged or not: it followed something.

        Files of records are there since some commit after the first one.
        """
        later = next(self._objects.later_than(lsn), None)
        if later is None and lsn == 1:
            files = chain(*map(self._files.walk, (paths.SEGMENT_FOLDER, paths.STAGED_FOLDER)))
            later = 2 if next(files, None) else None
        return later

    def _next_proven(self, lsn: int) -> CommitObject | None:
        """The first commit after this LSN that is the next one, or listed, and proves itself."""
        for later in chain([lsn + 1], self._objects.later_than(lsn)):
            with suppress(InvalidFrameError):
                found = self._objects.fetch(later)
                if found is not None:
                    return found
        return None

    def _pass_over(self, cursor: Cursor, reason: str) -> bool:
        """Go on behind a damaged commit, when a later one proves itself."""
        lsn, later = cursor.lsn + 1, self._next_proven(cursor.lsn + 1)
        file = paths.commit_object(lsn)
        if later is None:
            self.state.broken = LogDamage(file, reason, lsn, lsn)
            return False
        before = later.header.lsn - 1
        with self.changed:
            self._whole = False
            self.state.note_damage(LogDamage(file, reason, lsn, before))
            self.cursor = Cursor(before, later.header.previous, cursor.time)
            self._whole = True
        return True

    @property
    def tail(self) -> Tail:
        """The end of the log as far as it was read."""
        with self.changed:
            return self._writers.tail(self.cursor.lsn, self.cursor.time)

    def applied(self, end: Cursor, entries: list[Entry], nonce: bytes) -> None:
        """Take over a commit that was read, or that this process wrote itself."""
        with self.changed:
            self.settle()
            if end.lsn != self.cursor.lsn + 1:
                return  # another thread was faster
            self._whole = False
            self.state.apply(end.lsn, end.time, entries, file=end.lsn, position=0)
            self.cursor, self._whole = end, True
            self._writers.note(end.lsn, nonce[8:])
            self.news_at = self._environment.monotonic()
            self.changed.notify_all()

    def note_end(self, since: Moment) -> None:
        """The next name was free at this moment: this process created the last commit then."""
        self._known_since = since


def _gives_up_known(state: StoreState, entries: Sequence[Entry]) -> bool:
    """Whether a repair that knew of no records at some offsets gives these up, and a state does."""
    if any(isinstance(entry, SegmentEntry) for entry in entries):
        return False  # which has what is left of them
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
