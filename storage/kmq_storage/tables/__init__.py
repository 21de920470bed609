"""The state of a store as tables, for Spark's option `table` and for `kmq serve`.

`columns` has the columns of each table; the other modules make the rows from one state.
"""
