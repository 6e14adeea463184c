"""Mail: whose address, how a message is put together, how it leaves the machine. Without pandas."""
