"""`gua rollup`, the nightly run: roll up, verify, write CSV files, expire, compact, repair."""
