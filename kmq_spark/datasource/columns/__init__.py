"""The columns that Spark sees: of records, of typed topics, of tables."""
