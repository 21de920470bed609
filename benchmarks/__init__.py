"""kmq beside Kafka, Delta and the least any log in Python must do: `python -m benchmarks`."""
