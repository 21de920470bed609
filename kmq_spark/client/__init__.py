"""The Python client: stores, producers, consumers; never imports pyspark.

From `Producer.send` to the disk: producer -> sends (what waits) -> committer (one commit of all
that waits) -> encoding (to Arrow, per partition) -> `kmq_storage.log.commit_log`.
"""
