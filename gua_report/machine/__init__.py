"""Asking this machine in child processes: the driver, systemd, a folder as its owner."""
