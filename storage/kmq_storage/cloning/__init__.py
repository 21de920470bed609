"""Cloning: an independent store that shares files with its source, without copying records.

`clone` is the call, `sharing` makes the files common: by hard links, or read where they are.
"""
