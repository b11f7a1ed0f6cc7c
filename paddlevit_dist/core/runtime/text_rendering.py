"""Text in images, in any script that an installed font supports.

Pillow's font has ASCII; OpenCV's, from version 5 on, has European letters, Chinese, Japanese, Korean, Hebrew and
Arabic. Other characters are drawn as "?", and ``format_note`` reports them.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .printing import utf8

TEXT_PX, LINE_PX = 15, 21
_WEIGHT = 400  # of a regular font
_SQUARE_PX, _GAP_PX = 12, 12
_LONGEST_NAME = 40
_MAX_LISTED = 5

Color = tuple[int, int, int]


@functools.lru_cache(maxsize=1024)
def render_text(text: str, size_px: int = TEXT_PX) -> Image.Image:
    """Render a line of text as a mask ("L") of its width, for ``canvas.paste(color, (left, top), mask)``."""
    text, height = printable_or(text), round(size_px * LINE_PX / TEXT_PX)
    if text.isascii():
        font = _ascii_font(size_px)
        width = ImageDraw.Draw(Image.new("L", (1, 1))).textlength(text, font=font)
        mask = Image.new("L", (int(width) + 1, height))
        ImageDraw.Draw(mask).text((0, 0), text, fill=255, font=font)
        return mask
    import cv2

    left, _, width, _ = cv2.getTextSize((1, 1), text, (0, size_px), _unicode_font(), size_px, _WEIGHT)
    return Image.fromarray(_put(text, (height, left + width + 1), size_px))


def printable_or(text: str, otherwise: str = "") -> str:
    """Return the text with "?" for unsupported characters; ``otherwise``, if set, when nothing else would remain."""
    shown = "".join(letter if _is_drawable(letter) else "?" for letter in text)
    return shown if not otherwise or shown == text or shown.strip("? ") else otherwise


def format_note(names: Sequence[str]) -> list[str]:
    """Format a line about names, with their numbers, that cannot be drawn completely; empty if there are none."""
    incomplete = [f"{number} {name}" for number, name in enumerate(names) if printable_or(name) != name]
    if not incomplete:
        return []
    more = f" and {len(incomplete) - _MAX_LISTED:,} more" if len(incomplete) > _MAX_LISTED else ""
    remedy = "" if _unicode_font() else "; opencv-python-headless from version 5 on supports more scripts"
    names_text = ", ".join(incomplete[:_MAX_LISTED])
    return [
        f'note: no font here supports all of these names, so "?" or the number is drawn: {names_text}{more}{remedy}'
    ]


def legend(entries: Sequence[tuple[str, Color]], height: int, ink: str = "black", paper: str = "white") -> Image.Image:
    """Draw names next to squares of their colors, from top to bottom, in several columns if necessary."""
    rows = max(height // LINE_PX, 1)
    masks = [render_text(printable_or(name, f"number {n}")[:_LONGEST_NAME]) for n, (name, _) in enumerate(entries)]
    columns = [masks[first : first + rows] for first in range(0, len(masks), rows)]
    lefts = np.cumsum([0, *(_SQUARE_PX + 3 * _GAP_PX + max(letter.width for letter in column) for column in columns)])
    canvas = Image.new("RGB", (int(lefts[-1]), LINE_PX * min(rows, len(masks))), paper)
    pen = ImageDraw.Draw(canvas)
    for number, (mask, (_, color)) in enumerate(zip(masks, entries)):
        left, top = int(lefts[number // rows]) + _GAP_PX, number % rows * LINE_PX
        pen.rectangle([left, top + 4, left + _SQUARE_PX, top + 4 + _SQUARE_PX], fill=tuple(color), outline=ink)
        canvas.paste(ink, (left + _SQUARE_PX + 6, top), mask)
    return canvas


@functools.cache
def _is_drawable(letter: str) -> bool:
    if letter.isascii() or utf8(letter) != letter:  # OpenCV ends the process at a byte that is not UTF-8
        return letter.isascii() and letter.isprintable()
    return _unicode_font() is not None and not np.array_equal(
        *(_put(char, (LINE_PX, LINE_PX), TEXT_PX) for char in (letter, "?"))
    )


def _put(text: str, shape: tuple[int, int], size_px: int) -> np.ndarray:
    """Draw text in OpenCV's font, white on black, as uint8 of that shape (height, width)."""
    import cv2

    pixels = np.zeros(shape, np.uint8)
    cv2.putText(pixels, text, (0, size_px), (255,), _unicode_font(), size_px, _WEIGHT)
    return pixels


@functools.cache
def _unicode_font() -> Any:
    """Return OpenCV's font; None if it is not installed or older than version 5."""
    try:
        import cv2

        return cv2.FontFace("uni")
    except (ImportError, AttributeError):
        return None


@functools.cache
def _ascii_font(size_px: int) -> Any:
    try:
        return ImageFont.load_default(size_px)
    except TypeError:  # before Pillow 10.1 it has only one size
        return ImageFont.load_default()
