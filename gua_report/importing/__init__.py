"""gua import: take histories recorded by other programs into the data folder. Works without pandas."""
