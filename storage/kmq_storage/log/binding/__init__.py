"""Binding: commits are checked against the state that they follow; all of it is pure."""
