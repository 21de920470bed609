"""The code that Spark's executors run: tasks that read and write, and the values sent to them.

A task usually opens no commit log. These do: a task over keyed topics (`queue_reading`), a task
whose files have moved since it was planned, `CommitsTask`, whose rows are the log's, and
`announced`, which commits. `announcing` is called on the driver.
"""
