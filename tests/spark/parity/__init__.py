"""What Spark's Kafka source does with a real Kafka, and what kmq does, with the same code."""
