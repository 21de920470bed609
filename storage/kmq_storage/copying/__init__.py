"""Copying topics, groups and queues from one store to another, again and again.

`topics` is the call: for each topic its definition (`definitions`), and then each `partition`,
segment by segment. What the source forgot before the copy reached it: `deletions` of keys, `ends`
of keyed queues. `history` tells a source that was put back to an earlier time from one that went
on. `queues` copies queues, with the state of each record.
"""
