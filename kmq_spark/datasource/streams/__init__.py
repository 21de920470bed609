"""On the driver: where the next micro-batch of a stream ends."""
