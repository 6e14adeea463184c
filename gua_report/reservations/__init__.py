"""Reservations of cards, compared with who is on them. Read-only, and without pandas."""
