"""What became of a mail that was not sent for certain."""

from __future__ import annotations


class Unsure(str):
    """Why it is not known whether a mail was sent: it may have been, so it is not to be sent once more.

    A plain text says why it was not sent for certain.
    """
