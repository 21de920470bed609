"""Consumer groups: who is a member, who reads which partition, and how far they are.

A member joins, plans, releases and leaves in `membership`. What it commits is decided by pure
functions: `planning` with its `assignors`, and `liveness`, which finds dead members. A group is
shared, or has one `exclusive` member, such as a Spark query. `administration` is for everyone who
is no member: offsets, live members, lag.
"""
