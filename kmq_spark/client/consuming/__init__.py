"""Consumers, alone and in groups, and plain reads of topics."""
