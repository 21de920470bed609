"""Races that other systems were measured with, run whole."""
