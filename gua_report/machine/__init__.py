"""Child processes that ask the driver or systemd, or read a folder as its owner."""
