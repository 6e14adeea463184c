"""gua rollup: what is done once a day with days that are over: sums, CSV files, and what is old enough goes."""
