"""The files of an archive, in Delta or in Parquet: where they are and how they are read."""
