"""Every limit and default of the storage layer, with its unit and its reason."""

from __future__ import annotations

#: The on-disk format of files and stores.
FORMAT_VERSION = 1

#: That of stores which an older kmq would misread: clones that share files, or take no writes.
CLONE_FORMAT_VERSION = 2

#: Names become no paths, yet derived names (dead letters, retries) must fit into file names too.
NAME_LENGTH_MAX = 249
GROUP_NAME_LENGTH_MAX = 244

#: The name of a keyed queue is a key of a record, in bytes.
QUEUE_NAME_BYTES_MAX = 65_535

#: A log file is mapped whole by every reader, so it stays small against the address space.
LOG_FILE_BYTES = 64 * 1024 * 1024

#: Disk space is taken in steps of this size ahead of the writer, so that a store of three
#: records does not occupy a whole log file.
PREALLOCATE_BYTES = 4 * 1024 * 1024

#: A record batch above this is staged as a file of its own and the commit refers to it.
INLINE_BATCH_BYTES_MAX = 1024 * 1024

#: The inline batches of one commit together; a commit must also fit into one object of a bucket.
INLINE_COMMIT_BYTES_MAX = 4 * 1024 * 1024

#: Readers map record batches of at most this many rows, so that a short read touches little.
BATCH_ROWS_MAX = 65_536

#: And of about this many bytes.
STAGED_BATCH_BYTES = 8 * 1024 * 1024

#: What is made while it is written goes to the disk in pieces of about this size.
WRITE_BYTES = 8 * 1024 * 1024

#: Runs are merged up to about this many bytes of records: a million queues have ten messages of a
#: hundred bytes each there. Well below 2 GiB, which some readers can map.
RUN_BYTES = 1024 * 1024 * 1024

#: Merging has about so many rows and bytes of records in memory.
MERGED_ROWS = 1 << 19
MERGED_BYTES = 64 * 1024 * 1024

#: Segments that who asks for sealing has written at once: runs of a gigabyte take 270 MB each.
SEALED_AT_ONCE = 2

#: And so many rows go into a run that is sorted: of each some 30 bytes are in memory meanwhile.
SORTED_ROWS_MAX = 1 << 23

#: Names of queues whose messages are gone may be written anew with each trim if they take no more.
NAMES_BYTES = 1024 * 1024

#: Sorting hands on so many rows at a time: what they take comes from memory that was had before.
SORTED_ROWS = 1 << 15

#: The record batches of a run are as small as it takes that a look at one queue reads little, and
#: as large as it takes that what describes each doesn't count.
RUN_BATCH_ROWS = 4_096
RUN_BATCH_BYTES = 512 * 1024

PARTITIONS_MAX = 100_000
RECORD_BYTES_DEFAULT = 1_048_576

#: Larger than any sane record, and small enough that a batch of one stays under 2 GiB.
RECORD_BYTES_MAX = 512 * 1024 * 1024

#: What one transaction sends at most, in bytes and 64 more per record: it is one commit.
TRANSACTION_BYTES_MAX = 1024 * 1024 * 1024

#: An open transaction keeps so much in memory; more goes into files that its commit names.
TRANSACTION_MEMORY_BYTES = 32 * 1024 * 1024

#: A transaction that is open for longer (seconds) was forgotten: committing it would surprise.
TRANSACTION_SECONDS_MAX = 900.0

#: A writer that can't get the append lock for this long says who holds it (seconds).
LOCK_TIMEOUT = 10.0

#: Idempotence is kept for this many producers that wrote last; the log decides, not a clock. Of
#: those with a name as many are remembered, and by that the earlier one of a name is fenced.
PRODUCERS_REMEMBERED = 10_000

#: A batch that comes again is recognised while its application is one of so many that wrote last:
#: a new query every five minutes makes as many in a year. Each has 60 bytes in every checkpoint.
APPLICATIONS_REMEMBERED = 100_000

#: Of deleted topics, the newest with so many offsets (ends, and of groups) are remembered.
GONE_OFFSETS_REMEMBERED = 10_000

#: The name that a write gives itself to be stored once (`txnAppId`), in bytes of UTF-8.
APPLICATION_BYTES_MAX = 1_000

#: A waiting reader looks for itself at least this often (seconds), should a wake-up be lost.
WAIT_RECHECK = 1.0

#: A segment holds about this many bytes of records; larger ones are cheaper to keep track of,
#: smaller ones to rewrite.
SEGMENT_BYTES = 128 * 1024 * 1024

#: Files that nothing refers to any more stay this long (seconds), for readers that found them
#: before.
COLLECT_GRACE = 900.0

#: Files that no commit ever named stay this long (seconds): a Spark job stages for hours.
ORPHAN_AGE = 24 * 3600.0

#: Compaction drops a tombstone this long (seconds) after its commit: readers that are slower may
#: miss that its key was deleted.
TOMBSTONE_DELAY = 24 * 3600.0

#: Unsealed records wait this long (seconds) for a segment to fill up.
SEAL_AFTER = 600.0

#: A checkpoint is due after so many commits, which opening would have to read.
CHECKPOINT_COMMITS = 1_000

#: A handle that applied so many commits looks for a newer checkpoint to go on from, and forgets
#: what is in its pages.
REBASE_COMMITS = 10_000

#: And one that is so old (seconds): well before what it knows may be collected.
REBASE_SECONDS = COLLECT_GRACE / 3

#: A topic's keys are compacted when this share of its sealed bytes was never compacted.
DIRTY_SHARE = 0.5

#: A handle that writes looks after its store this often (seconds).
MAINTAIN_INTERVAL = 10.0

#: One commit in a bucket: some servers answer larger conditional uploads before they read them.
COMMIT_OBJECT_BYTES_MAX = 4 * 1024 * 1024

#: The inline batches of such a commit; its directory needs the rest.
COMMIT_OBJECT_INLINE_MAX = 3 * 1024 * 1024

#: A commit in a bucket whose outcome stays unknown for this long is an error (seconds).
COMMIT_TIMEOUT = 60.0

#: A follower of a bucket looks again after these pauses (seconds): they grow while nothing comes.
FOLLOW_PAUSE_FIRST = 0.02
FOLLOW_PAUSE_MAX = 2.0

#: What was read of a bucket counts as the newest for a writer in a hurry (seconds).
FRESH_SECONDS = 1.0

#: Commits stay in a bucket for this long after it was said that nobody needs them (seconds,
#: by the clock of the store). Part of the format: whoever reads or writes counts on it.
COLLECTED_LOG_GRACE = 3600.0

#: A holder of a lock in a bucket that wrote nothing for this long is taken for dead (seconds).
LEASE_SECONDS = 30.0

#: The longest duration that is stored (seconds), 1,000 years: instants fit beside it.
DURATION_MAX = 1_000 * 365.25 * 86_400
