"""Every limit and default of the storage layer, with its unit and its reason."""

from __future__ import annotations

#: The on-disk format of files and stores.
FORMAT_VERSION = 1

#: The format of stores that an older kmq would misread: clones that share files or are read-only.
CLONE_FORMAT_VERSION = 2

#: Names are never used as paths. Still, names derived from them (such as those of dead-letter
#: queues) must fit into file names.
NAME_LENGTH_MAX = 249
GROUP_NAME_LENGTH_MAX = 244

#: The name of a keyed queue, which is the key of its records, in bytes.
QUEUE_NAME_BYTES_MAX = 65_535

#: Every reader maps whole log files, so they are small against the address space.
LOG_FILE_BYTES = 64 * 1024 * 1024

#: Disk space is allocated in steps of this size ahead of the writer, so that a store of three
#: records does not occupy the space of a whole log file.
PREALLOCATE_BYTES = 4 * 1024 * 1024

#: A larger record batch is staged as a file of its own, to which the commit refers.
INLINE_BATCH_BYTES_MAX = 1024 * 1024

#: The inline batches of one commit together.
INLINE_COMMIT_BYTES_MAX = 4 * 1024 * 1024

#: On a disk, batches of at most this are inline up to a higher limit: a file of its own would take
#: longer, for its syncs, and more room. 100,000 batches of a small record, one of each partition,
#: fit in. With its directory and paddings, such a commit still fits into a log file.
SMALL_BATCH_BYTES_MAX = 16 * 1024
SMALL_COMMIT_BYTES_MAX = 32 * 1024 * 1024

#: The most rows of a stored record batch, so that a short read touches few bytes.
BATCH_ROWS_MAX = 65_536

#: A stored record batch has about this many bytes at most.
STAGED_BATCH_BYTES = 8 * 1024 * 1024

#: A file that is generated while it is written goes to the disk in pieces of about this size.
WRITE_BYTES = 8 * 1024 * 1024

#: Runs are merged up to about this many bytes of records, enough for ten messages of 100 bytes in
#: each of a million queues. It is well below 2 GiB, the most that some readers can map.
RUN_BYTES = 1024 * 1024 * 1024

#: A new run takes in earlier ones if that writes at most so many bytes for each second since the
#: run before it: little of a disk's time, and less than 4 GiB of files that wait to be collected.
TAKEN_IN_BYTES = 4 * 1024 * 1024

#: Merging keeps about this many rows and bytes of records in memory.
MERGED_ROWS = 1 << 19
MERGED_BYTES = 64 * 1024 * 1024

#: An explicit seal writes this many segments at once; a run of a gigabyte takes 270 MB of memory.
SEALED_AT_ONCE = 2

#: A repair names the lost messages of a run by queue and index in at most this many bytes: all who
#: open the store keep them in memory.
LOST_MESSAGES_BYTES_MAX = 1024 * 1024

#: At most this many small files are written and synced together. Each is open meanwhile, and a
#: process may often have only 1,024 open files.
STAGED_TOGETHER = 64

#: The most rows of a run that is sorted; each takes about 30 bytes of memory meanwhile.
SORTED_ROWS_MAX = 1 << 23

#: Names of queues without messages may be rewritten with each trim if they take at most this.
NAMES_BYTES = 1024 * 1024

#: Sorting passes on this many rows at a time, few enough that their memory is reused.
SORTED_ROWS = 1 << 15

#: The record batches of a run: small enough that a look at one queue reads little, and large enough
#: that their descriptions take no room that matters.
RUN_BATCH_ROWS = 4_096
RUN_BATCH_BYTES = 512 * 1024

PARTITIONS_MAX = 100_000
RECORD_BYTES_DEFAULT = 1_048_576

#: Larger than any sane record, and small enough that a batch of one stays under 2 GiB.
RECORD_BYTES_MAX = 512 * 1024 * 1024

#: The most bytes of one transaction, which is one commit; each record counts 64 bytes more.
TRANSACTION_BYTES_MAX = 1024 * 1024 * 1024

#: An open transaction keeps this much in memory; more goes into files that its commit names.
TRANSACTION_MEMORY_BYTES = 32 * 1024 * 1024

#: A transaction that is open for longer (seconds) was probably forgotten, so it is not committed.
TRANSACTION_SECONDS_MAX = 900.0

#: A writer that can't get the append lock for this long (seconds) fails and names the holder.
LOCK_TIMEOUT = 10.0

#: Idempotence holds for this many producers that wrote last; the log decides, not a clock. As many
#: producers with a name are remembered, so that an earlier one of the same name is fenced.
PRODUCERS_REMEMBERED = 10_000

#: A repeated batch is recognised while its application is one of this many that wrote last. A new
#: query every five minutes makes as many in a year. Each takes 60 bytes in every checkpoint.
APPLICATIONS_REMEMBERED = 100_000

#: The newest deleted topics are remembered, up to this many offsets (their ends, and of groups).
GONE_OFFSETS_REMEMBERED = 10_000

#: The name under which an application's batches are stored once (`txnAppId`), in bytes of UTF-8.
APPLICATION_BYTES_MAX = 1_000

#: The most records that one commit hands out of a queue. While they are held, each takes 50 bytes
#: in every process that has the store open.
RECEIVED_MAX = 1_000_000

#: A waiting reader looks again at least this often (seconds), in case a wake-up is lost.
WAIT_RECHECK = 1.0

#: A wait for an instant looks at the clock at least this often (seconds): it may be put forward,
#: and while a machine is suspended, the monotonic clock of the wait stands still.
CLOCK_RECHECK = 10.0

#: A segment holds about this many bytes of records. Larger segments are cheaper to manage, smaller
#: ones are cheaper to rewrite.
SEGMENT_BYTES = 128 * 1024 * 1024

#: Files that nothing refers to any more stay this long (seconds) for readers that found them
#: before.
COLLECT_GRACE = 900.0

#: Files that no commit ever named stay this long (seconds), as a Spark job may stage for hours.
ORPHAN_AGE = 24 * 3600.0

#: Compaction drops a tombstone this long (seconds) after its commit. A slower reader may miss that
#: the key was deleted.
TOMBSTONE_DELAY = 24 * 3600.0

#: Unsealed records wait this long (seconds) for a segment to fill up.
SEAL_AFTER = 600.0

#: A checkpoint is due after this many commits, which opening a store would have to read.
CHECKPOINT_COMMITS = 1_000

#: A handle that applied this many commits looks for a newer checkpoint. If there is one, it goes on
#: from there, and drops the rows that are in the checkpoint's pages from memory.
REBASE_COMMITS = 10_000

#: A handle also looks for one after this time (seconds), well before its files may be collected.
REBASE_SECONDS = COLLECT_GRACE / 3

#: A topic's keys are compacted when this share of its sealed bytes was never compacted.
DIRTY_SHARE = 0.5

#: How often a writing handle maintains its store (seconds).
MAINTAIN_INTERVAL = 10.0

#: The most bytes of one commit in a bucket. Some servers answer larger conditional uploads before
#: they have read them.
COMMIT_OBJECT_BYTES_MAX = 4 * 1024 * 1024

#: The inline batches of one commit in a bucket; the rest is for its directory.
COMMIT_OBJECT_INLINE_MAX = 3 * 1024 * 1024

#: A commit in a bucket whose outcome stays unknown for this long is an error (seconds).
COMMIT_TIMEOUT = 60.0

#: The first and longest pause (seconds) of a follower of a bucket, which grows while nothing comes.
FOLLOW_PAUSE_FIRST = 0.02
FOLLOW_PAUSE_MAX = 2.0

#: For this long (seconds), a state read from a bucket is fresh enough to bind a commit to.
FRESH_SECONDS = 1.0

#: Commits stay in a bucket for this long (seconds, by the store's clock) after they were marked as
#: collected. This is part of the format: all readers and writers rely on it.
COLLECTED_LOG_GRACE = 3600.0

#: A holder of a lock in a bucket that wrote nothing for this long (seconds) counts as dead.
LEASE_SECONDS = 30.0

#: The longest duration that is stored (seconds), 1,000 years, so that sums with times don't
#: overflow.
DURATION_MAX = 1_000 * 365.25 * 86_400
