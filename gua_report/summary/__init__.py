"""A window of time added up: the report's figures."""
