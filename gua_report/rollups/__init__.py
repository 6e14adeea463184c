"""Closed days as sums: computing them from ticks, and their file."""
