"""gua import: histories that others recorded, taken into the data folder. Works without pandas."""
