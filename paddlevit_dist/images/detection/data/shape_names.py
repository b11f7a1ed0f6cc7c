"""What can be drawn: needed by the keys, which are read without NumPy."""

from __future__ import annotations

CATEGORIES = ("circle", "square", "triangle", "cross", "ring", "bar")
SMALLEST_SIDE = 16  # of a picture, in pixels
