"""The sums over a window of time: the report's figures."""
