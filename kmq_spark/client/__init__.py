"""The Python client: stores, producers, consumers; never imports pyspark.

From `Producer.send` to the disk, and what it becomes on the way:

    producer       a record becomes a row of open Sends; the caller gets a SendFuture, a light
                   view of them as their Outcome
    pending        Sends wait, bounded in bytes, until the producer's thread takes them
    committer      Sends become Work (`works`: rows of one topic together), each Work makes a Unit
                   of entries and Arrow messages (`routing`, `encoding`), Units become one commit
    kmq_storage    `log.local_log` binds, writes and syncs it
    acknowledger   the commit says where the rows went; Sends are finished, futures done
"""
