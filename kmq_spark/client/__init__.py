"""The Python client: stores, producers, consumers; never imports pyspark.

The store and its calls are here, what they return is below, upper packages first:

    orderly, keyed  orderly consumers; queues that are the keys of one topic
    sending         producers and transactions
    queues          receivers of queues, deliveries, dead letters
    typed           the columns and values of typed topics
    consuming       consumers and their groups; plain reads
    encoding        from what users hand in to stored columns, and to partitions
    records         records as users see them, and their way from stored columns
    compiled        the modules that are C where there is a compiler
    handles         arguments, closing, futures

From `Producer.send` to the disk, and what it becomes on the way:

    producer       a record becomes a row of open Sends; the caller gets a SendFuture, a light
                   view of them as their Outcome
    pending        Sends wait, bounded in bytes, until the producer's thread takes them
    committer      Sends become Work (`works`: rows of one topic together), each Work makes a Unit
                   of entries and Arrow messages (`encoding`), Units become one commit
    kmq_storage    `log.disk.local_log` binds, writes and syncs it
    acknowledger   the commit says where the rows went; Sends are finished, futures done
"""
