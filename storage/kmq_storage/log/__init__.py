"""The commit log: what is written, in which order, who sees it, and what it adds up to.

`commit_log` is its interface, `open` chooses who keeps it. Below them, upper packages first:

    disk, bucket   the log as files that several processes append to, or as objects
    reading        records at their places
    binding        commits are checked against the state that they follow
    checkpoints    the state in files, from which opening begins
    files          frames, locks and the hint page of a log on a disk
    state          what the commits add up to; queues in a package of their own
    index          from offsets and times to where records are
"""
