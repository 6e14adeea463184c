"""Who is behind a process."""
