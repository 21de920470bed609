"""Queues, as their receivers and their administrators need them; the state is in `log.state`.

A receiver acquires records and answers for them (`handing`). Before that, it looks at records
that a filter must let in, or whose keys count (`looking` with `filters`), and reports what a repair
gave up (`lost_records`). Afterwards it may note what it finished on a page, which is faster
than a commit (`slips`). `letters` follows dead letters back and forth. `administration` creates,
binds, deletes and lists.
"""
