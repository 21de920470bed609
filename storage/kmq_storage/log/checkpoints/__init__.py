"""Checkpoints: the state of a store in files, from which opening begins."""
