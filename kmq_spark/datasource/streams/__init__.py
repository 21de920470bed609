"""On the driver: decides where the next micro-batch of a stream ends."""
