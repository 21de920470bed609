"""On the driver: the checks of a write before its tasks start, and its one commit after them."""
