"""What kmq is measured against: a real Kafka broker, its Spark connector, and Delta."""
