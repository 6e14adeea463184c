"""A closed day as sums: how it is made of ticks, and its file."""
