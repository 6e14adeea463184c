"""gua status and gua free: one fresh reading of the driver, joined with the history. Without pandas."""
