"""Verify and repair: is every byte of a store right, and what to do when some are not."""
