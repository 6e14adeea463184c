"""gua doctor: whether sampling works here, and the command that mends it if not. Reads only, and without pandas."""
