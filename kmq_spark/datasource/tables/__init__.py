"""Option `table`: the rows of a store's own state, and the tasks that read them."""
