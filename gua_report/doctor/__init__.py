"""gua doctor: whether sampling works here, and the command that repairs it if not. Read-only, and without pandas."""
