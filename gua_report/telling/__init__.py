"""Telling of what is held without work: reminders to people, and the administrator's hook. Without pandas."""
