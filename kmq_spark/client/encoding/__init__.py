"""From what users hand in to rows in the stored Arrow columns, and to partitions."""
