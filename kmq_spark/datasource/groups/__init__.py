"""The consumer groups of queries: their offsets, and how far they are behind."""
