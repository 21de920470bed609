"""Option `table`: the tasks that read the rows of a store's own state."""
