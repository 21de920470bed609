"""Writing a commit in a bucket: it is bound to the newest state and created under its LSN's name.

- **The name is the commit**, because it can be created only once. The commit is ours when the
  bucket confirms that we created the object, or when the object has our nonce when read back. After
  any other answer, the writer tries again.
- **Lost races**: when another writer created the name first, the units are bound anew to the new
  state.
- **Collected names**: the name of a collected commit is free again. A writer that was not certain
  of the log's end may have created such a name. So its object counts at once only if it is above
  all LSNs that are marked as collected. Otherwise it was either written before the mark, and other
  writers have read it, or after it, and is void.
- **Buckets without atomic creation** have one writer at a time, which holds a lease. Before a
  commit, it checks the lease if it did not do so for a while.
"""

from __future__ import annotations

from collections.abc import Sequence

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import CommitOutcomeUnknownError, InvalidRequestError
from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit, bind
from kmq_storage.log.bucket.collected import Moment, marked_long_ago
from kmq_storage.log.bucket.commit_objects import CommitObject, CommitObjects, NewCommit
from kmq_storage.log.bucket.contention import Contention, Tail
from kmq_storage.log.bucket.follower import Follower
from kmq_storage.log.bucket.single_writer import SingleWriter
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk_errors import broken_end, translated
from kmq_storage.log.framing import Stamp, framed
from kmq_storage.model import LogDamage, to_datetime
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles

_PAUSE_FIRST, _PAUSE_MAX = 0.05, 2.0
#: Why the outcome of a commit is unknown when its writer slept too long.
_SLEPT = "answered when the commit may have been collected already"


class NextObject:
    """Writes commits behind those that a follower has read."""

    def __init__(
        self,
        files: BucketFiles,
        objects: CommitObjects,
        follower: Follower,
        environment: Environment,
        *,
        single: SingleWriter | None,
    ) -> None:
        self._files = files
        self._objects = objects
        self._follower = follower
        self._environment = environment
        self._single = single
        #: The second half of all nonces of this handle, by which other writers see its turns.
        self._tag = environment.new_uuid().bytes[8:]
        self._contention = Contention(environment, self._tag)

    @property
    def lost_races(self) -> int:
        """How often another writer won the race for an LSN."""
        return self._contention.lost_count

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """Write one commit of all units; for one thread at a time. See `CommitLog.append`."""
        with translated(self._files.url):
            became_writer = self._single is not None and self._single.check()
            if became_writer or not self._follower.is_sure:
                self._follower.advance()
            while True:
                self._contention.before(self._look, self._follower.cursor.lsn)
                begun = Moment.now(self._environment)
                commit = self._next_commit(units)
                end = commit.end
                if self.create(commit):
                    seconds = begun.seconds_to(Moment.now(self._environment))
                    self._contention.won(seconds, end.lsn)
                    self._follower.applied(end, commit.framed.entries, commit.stamp.nonce)
                    self._follower.note_end(begun)
                    return stored_commit(end, commit.framed.entries)
                self._contention.lost(end.lsn)
                self._follower.advance()

    def _look(self, expected: int) -> Tail:
        self._follower.advance(expected)
        return self._follower.tail

    def _next_commit(self, units: Sequence[Unit]) -> NewCommit:
        """The units bound to the known state; if that refuses them, to a refreshed one."""
        try:
            return self._bound(units)
        except (RefusedError, DuplicateCommitError):
            self._follower.advance()
            return self._bound(units)

    def _bound(self, units: Sequence[Unit]) -> NewCommit:
        bodies = [body for unit in units for body in unit.bodies]
        with self._follower.changing:
            self._follower.settle()
            self._check_whole()
            after = self._follower.cursor
            assert after.lsn == self._follower.state.lsn, "what a commit follows is its state"
            entries = bind(self._follower.state, units)
        nonce = self._environment.new_uuid().bytes[:8] + self._tag
        time = after.next_time(self._follower.time.now_us(after.time))
        stamp = Stamp(time, nonce, after.lsn)
        commit = NewCommit(after, stamp, framed(entries, bodies))
        if commit.length > limits.COMMIT_OBJECT_BYTES_MAX:
            raise InvalidRequestError(
                f"a commit of {commit.length} bytes is more than a bucket takes at once "
                f"({limits.COMMIT_OBJECT_BYTES_MAX}); send less at once",
                length=commit.length,
            )
        return commit

    def _check_whole(self) -> None:
        broken = self._follower.state.broken
        if broken is not None:
            raise broken_end(broken)

    def create(self, commit: NewCommit) -> bool:
        """Create the commit; returns whether it is ours, once that is certain."""
        uploads = self._upload(commit)
        return uploads > 0 and not self._is_void(commit, uploads)

    def _upload(self, commit: NewCommit) -> int:
        """The number of uploads until the name was ours; 0 when it is another writer's."""
        deadline = self._environment.monotonic() + limits.COMMIT_TIMEOUT
        pause, uploads = _PAUSE_FIRST, 0
        while True:
            uploads += 1
            try:
                if self._objects.create(commit) is Put.CREATED:
                    return uploads
                found = self.read_back(commit.end.lsn)
                if found is not None:
                    return uploads if found.header.nonce == commit.stamp.nonce else 0
            except (PermissionError, FileNotFoundError):
                if uploads == 1:
                    raise
            except OSError:
                pass  # the answer is unknown: try again
            if self._environment.monotonic() > deadline:
                why = f"gave no usable answer for {limits.COMMIT_TIMEOUT:g} s"
                raise _unknown(self._files.url, commit.end.lsn, why)
            self._environment.sleep(pause * (0.5 + self._environment.rng.random()))
            pause = min(2 * pause, _PAUSE_MAX)

    def read_back(self, lsn: int) -> CommitObject | None:
        """The commit with this LSN, or None; CorruptionError when it is damaged."""
        try:
            return self._objects.fetch(lsn)
        except InvalidFrameError as error:
            damage = LogDamage(paths.commit_object(lsn), str(error), lsn, lsn)
            raise broken_end(damage) from error

    def _is_void(self, commit: NewCommit, uploads: int) -> bool:
        """Whether the name was free only because its earlier commit was collected.

        No reader will ever see such a commit. CommitOutcomeUnknownError when it may also have been
        valid, and collected since.
        """
        if self._follower.is_sure:
            return False
        try:
            marked = marked_long_ago(self._files, commit.end.lsn)
            if marked is None or self._objects.is_followed(commit):
                return False
            written = self._objects.written_at(commit)
        except OSError as error:
            raise _unknown(self._files.url, commit.end.lsn, _SLEPT) from error
        # After several uploads, an earlier one may have been read: this object can't tell.
        if uploads == 1 and written is not None and written > marked:
            return True
        raise _unknown(self._files.url, commit.end.lsn, _SLEPT)


def stored_commit(end: Cursor, entries: list[Entry]) -> WrittenCommit:
    """A commit of a bucket, where written commits are never lost."""
    return WrittenCommit(
        end.lsn, to_datetime(end.time), tuple(entries), chain=end.chain or 0, losses=0
    )


def _unknown(url: str, lsn: int, why: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"store {url} {why}; commit {lsn} may be stored or not", url=url, lsn=lsn
    )
