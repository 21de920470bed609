"""Producers and their transactions: from `send` to a commit and its acknowledgement."""
