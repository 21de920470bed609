"""The state of a store as tables: Spark's option `table`, and what `kmq serve` shows.

Read `columns` for what each table says; the others make its rows of one state.
"""
