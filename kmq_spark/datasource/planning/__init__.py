"""On the driver: from what a read wants to offset ranges, and from those to tasks."""
