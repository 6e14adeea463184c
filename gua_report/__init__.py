"""Everything that reads partitions. It never writes to one."""
