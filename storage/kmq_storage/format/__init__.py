"""Bytes to values and back: pure functions without I/O or clock (specified in FORMAT.md)."""
