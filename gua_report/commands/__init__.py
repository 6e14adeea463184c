"""The verbs of `gua`, one file each.

What needs pandas is imported in functions: it takes longer than all the rest, and usage errors don't need it.
"""
