"""The commit log's interface, the same for a store on a disk and in a bucket.

`local_log` keeps the log in files that several processes append to; `bucket_log` keeps one object
per commit. The interface has two sides:

- **Writers** prepare a commit on a state that it may follow. `known_state` costs nothing and may
  be old, `recent_state` costs no request and is at most about a second old, and `written_state`
  has every written commit.
- **Readers** use the visible state. `refresh` brings it up to date, `state` is the result of the
  last refresh, `reload` rebuilds it after files that it names were collected, and `snapshot`
  returns a separate state that no later refresh changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.state.lost_ranges import Behind, Unnamed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import Commit
from kmq_storage.objects.files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCommit(Commit):
    """A written commit, with what is needed to find out whether it survived a failed sync."""

    #: The chain value of its frame, which tells it from another commit with the same LSN.
    chain: int
    #: `Hint.losses` when it was written.
    losses: int


class CommitLog(Protocol):
    """One handle on a store's commit log; safe for any number of threads."""

    identity: Identity
    environment: Environment
    #: Whether commits are visible and acknowledged only once they are on disk.
    durable: bool

    @property
    def prompt(self) -> bool:
        """Whether an append would return at once, so that a caller's thread may do it."""

    #: Whether the log is reached by network requests; several at once take as long as one.
    is_remote: bool
    #: Limit for the bytes of record batches inside one commit. Further batches go into the next
    #: commit; a single larger batch is staged.
    inline_bytes_max: int
    #: How many bytes more small batches may take inside a commit, before they are staged, too.
    small_room: int

    @property
    def files(self) -> Files:
        """The files of the store."""

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """Write one commit of all units. Other processes see it, but only `sync` makes it durable.

        The result has the entries of these units only, although units of other threads may share
        the commit.

        - **RefusedError** names a unit that can't be bound. Nothing is written.
        - **DuplicateCommitError** names the commit that stored this before. Nothing is written.
        - **UnavailableError**: the store can't be written, for example because the disk is full or
          another process holds the append lock.
        - **CommitOutcomeUnknownError**: the commit may or may not be stored.
        """

    def sync(self, commit: WrittenCommit | int) -> None:
        """Return once a commit is durable; for another writer's commit, pass its LSN.

        UnavailableError when the commit was lost, CommitOutcomeUnknownError when this can't be
        known.
        """

    def commit(self, units: Sequence[Unit], *, durable: bool | None = None) -> WrittenCommit:
        """Append one commit and, if asked for, wait until it is durable.

        `durable` defaults to the setting that the store was opened with. Where `append` raises
        RefusedError, this raises the error that refused the unit.
        """

    def written_state(self) -> StoreState:
        """The state with every written commit, to prepare a commit on; it has no offset index."""

    def recent_state(self) -> StoreState:
        """As `written_state`, but up to a second old where a newer state would cost a request."""

    @property
    def known_state(self) -> StoreState:
        """The last written state that this handle has read, at no cost."""

    def written_commit(self, lsn: int) -> WrittenCommit:
        """The written commit with this LSN, whether it is durable or not.

        OffsetOutOfRangeError when the commit was collected; only durable commits are.
        """

    def refresh(self) -> StoreState:
        """The state with every visible commit: durable ones, or all written if not `durable`."""

    def reload(self) -> StoreState:
        """The state with every visible commit, rebuilt from the newest checkpoint.

        For a reader that finds files of its state collected.
        """

    @property
    def state(self) -> StoreState:
        """The state as of the last refresh."""

    def now_us(self) -> int:
        """The log's time (UTC us): this clock's, but never before the last commit of `state`.

        Where that is ahead of this clock, time goes on all the same (`log_time`).
        """

    def wait(
        self,
        lsn: int,
        timeout: float,
        stopped: Callable[[], bool] = lambda: False,
        rehearse: Callable[[], object] = lambda: None,
    ) -> bool:
        """Sleep until a commit after this LSN is written, for at most `timeout` seconds.

        Sleeping costs no CPU. The call also returns after `wake_waiters` when `stopped` returns
        True. When a writer announces a commit, `rehearse` is called before it arrives: it may run
        the code that will read the commit, to warm the processor's caches.
        """

    def wake_waiters(self) -> None:
        """Make every thread in `wait` check again, for example because its consumer closed."""

    def commits(self, start: int | None) -> Iterator[Commit]:
        """The visible commits from LSN `start`, or from the first that is still in the log.

        OffsetOutOfRangeError when commit `start` was collected.
        """

    def snapshot(self) -> tuple[StoreState, Cursor]:
        """A reader's state with every durable commit, and the place where the log goes on.

        Later refreshes do not change this state.
        """

    def go_on_behind(self, unnamed: Unnamed) -> Behind:
        """Write a checkpoint behind damaged commits, so that the log can be written again.

        The checkpoint has the records found in unnamed files, and gaps where records are lost.
        """

    def drop_before(self, lsn: int) -> list[str]:
        """Delete the log's files that hold only commits before an LSN; returns their names."""

    def check_open(self) -> None:
        """ClosedError once the handle is closed."""

    def close(self) -> None:
        """Release files and locks; waiting threads get ClosedError."""
