"""The state of queues: which records wait, are locked, or were answered."""
