"""The state of a store at one LSN: a pure function of its commits."""
