"""Orderly consumption: a listener gets each partition's records one batch after the other."""
