"""Keeping a store tidy: seal, checkpoint, trim, compact, collect; each a plan and an executor."""
