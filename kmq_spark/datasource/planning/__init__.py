"""On the driver: from the options of a read to offset ranges, and from those to tasks."""
