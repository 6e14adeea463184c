"""gua export: the recorded data, for the tools that people already have."""
