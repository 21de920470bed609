"""What runs on Spark's executors: tasks read and write here, and replay no log."""
