"""What cards are reserved for, against who is on them. Reads only, and without pandas."""
