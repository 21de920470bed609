"""What runs on Spark's executors: tasks that read and write, and the values that travel to them.

A task replays no log, unless a file of its records has moved meanwhile; but the rows of
`CommitsTask` are the log's, and `announced` commits. `announcing` is called on the driver.
"""
