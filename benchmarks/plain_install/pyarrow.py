"""Stands in the way of pyarrow: a plain install has none, and pandas would import and use it."""

raise ImportError("no pyarrow here")
