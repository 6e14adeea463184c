"""The people behind processes."""
