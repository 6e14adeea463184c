"""The verbs of `gua`, one file each."""
