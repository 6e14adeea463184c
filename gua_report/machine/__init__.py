"""Child processes that ask the driver, systemd or the runtimes of containers, or read a folder as its owner."""
