"""gua export: what was recorded, for the tools that people already have."""
