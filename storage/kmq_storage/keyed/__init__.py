"""Keyed queues: a million queues as the keys of one topic."""
