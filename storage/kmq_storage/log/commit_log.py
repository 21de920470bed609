"""The commit log, as everything above it sees it, wherever the store is.

`local_log` keeps it in files on a disk that several processes append to, `bucket_log` as one object
per commit. There are two sides to it. Who prepares a commit asks for the state that it will
follow: `known_state` costs nothing, `recent_state` no request, `written_state` is certain. Who
reads asks for what is visible: `state` as of the last `refresh`, `reload` when files that it
names are gone, and `snapshot` for a state of one's own that nobody moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.log.binding import Unit
from kmq_storage.log.journal import Cursor
from kmq_storage.log.lost_ranges import Behind, Unnamed
from kmq_storage.log.state import StoreState
from kmq_storage.model import Commit
from kmq_storage.objects.files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCommit(Commit):
    """A commit that is written, and how to recognise it after a failed sync lost some."""

    #: Its frame's chain.
    chain: int
    #: `Hint.losses` when it was written.
    losses: int


class CommitLog(Protocol):
    """One handle on a store's commit log; safe for any number of threads."""

    identity: Identity
    environment: Environment
    #: Whether a commit counts, and is visible, only when it is on disk.
    durable: bool

    @property
    def prompt(self) -> bool:
        """Whether an append would not wait: it may be done where a caller should not be kept."""

    #: Whether it takes requests to somewhere else, of which several at once take as long as one.
    is_remote: bool
    #: Bytes of the batches inside one commit; more are staged, or go into the next one.
    inline_bytes_max: int

    @property
    def files(self) -> Files:
        """The place of the store."""

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """Write one commit of all units; it is visible to others, but `sync` makes it durable.

        It shows the entries of these units, though those of other threads may stand beside them.

        RefusedError names the unit that can't be bound, DuplicateCommitError the commit that
        is stored already; nothing is written then. UnavailableError when the store can't be written
        (a full disk, a lock that is held), CommitOutcomeUnknownError when nobody can tell.
        """

    def sync(self, commit: WrittenCommit | int) -> None:
        """Return when a commit is on disk; an LSN is enough where somebody else wrote it.

        UnavailableError when it was lost, CommitOutcomeUnknownError when it can't be told.
        """

    def commit(self, units: Sequence[Unit], *, durable: bool | None = None) -> Commit:
        """Append one commit and wait until it is durable, as this store was opened for or as asked.

        Raises what was wrong with a unit itself, instead of RefusedError.
        """

    def written_state(self) -> StoreState:
        """The state with every written commit, to prepare the next one with; it knows no chunks."""

    def recent_state(self) -> StoreState:
        """The same, perhaps as of a second ago where asking for more costs a request."""

    @property
    def known_state(self) -> StoreState:
        """The state that the next commit would follow as far as this handle knows, at no cost."""

    def written_commit(self, lsn: int) -> WrittenCommit:
        """The written commit with this LSN, whether it is on disk or not.

        OffsetOutOfRangeError when it was collected: then it was on disk.
        """

    def refresh(self) -> StoreState:
        """The state with every visible commit: what is on disk, or written for `durable=False`."""

    def reload(self) -> StoreState:
        """The state with every visible commit, built anew from the newest checkpoint.

        For a reader whose files were collected.
        """

    @property
    def state(self) -> StoreState:
        """The state as of the last refresh."""

    def now_us(self) -> int:
        """The log's time, UTC us: this clock's, and never before the last commit of `state`."""

    def wait(
        self,
        lsn: int,
        timeout: float,
        stopped: Callable[[], bool] = lambda: False,
        rehearse: Callable[[], object] = lambda: None,
    ) -> bool:
        """Sleep until a commit after this LSN is written, at most `timeout` seconds.

        Costs no CPU while nothing happens. Also returns when `wake_waiters` was called and
        `stopped` says so. Where somebody can tell that a commit comes soon, `rehearse` is called
        then: it may do what will be done with it, to have that in the processor's caches.
        """

    def wake_waiters(self) -> None:
        """Have every waiting thread look again, for a close from another thread."""

    def commits(self, start: int | None) -> Iterator[Commit]:
        """The visible commits from an LSN on; None: from the first that is still in the log.

        OffsetOutOfRangeError when that commit was collected.
        """

    def snapshot(self) -> tuple[StoreState, Cursor]:
        """A reader's state of its own with every commit on disk, and where the log goes on."""

    def go_on_behind(self, unnamed: Unnamed) -> Behind:
        """Have gaps, and what files hold, instead of damaged commits; a checkpoint behind them."""

    def drop_before(self, lsn: int) -> list[str]:
        """Delete what only commits before an LSN need of the log; the names of the files."""

    def check_open(self) -> None:
        """ClosedError once the handle is closed."""

    def close(self) -> None:
        """Give back files and locks; waiting threads end with ClosedError."""
