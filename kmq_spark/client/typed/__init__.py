"""Typed topics: columns and values, checked exactly, and rows of them."""
