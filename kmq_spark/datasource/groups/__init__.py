"""The groups that queries read for: their offsets, and how far they are behind."""
