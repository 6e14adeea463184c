"""gua status and gua free: one fresh look at the driver, joined with what the history tells. Without pandas."""
