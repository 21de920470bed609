"""Keyed queues: any number of light queues in one topic."""
