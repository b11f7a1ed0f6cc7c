"""Words in images, in any script that an installed font has letters for.

Pillow brings a font of ASCII, OpenCV from version 5 on one of European letters, Chinese, Japanese, Korean, Hebrew and
Arabic. What neither has is drawn as "?", and ``format_note`` tells it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

TEXT_PX, LINE_PX = 15, 21
_WEIGHT = 400  # of a regular font
_SQUARE_PX, _GAP_PX = 12, 12
_LONGEST_NAME = 40
_MOST_TOLD = 5

Color = tuple[int, int, int]


@functools.lru_cache(maxsize=1024)
def render_text(text: str, size_px: int = TEXT_PX) -> Image.Image:
    """A line of text as a mask ("L"), as wide as the text; ``canvas.paste(color, (left, top), render_text(text))``."""
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
    """The text with "?" for what no font here has; ``otherwise``, if it is given, where nothing else would be left."""
    shown = "".join(letter if _is_drawable(letter) else "?" for letter in text)
    return shown if not otherwise or shown == text or shown.strip("? ") else otherwise


def format_note(names: Sequence[str]) -> list[str]:
    """The line about names, with their numbers, that are not drawn with all their letters, if there are such."""
    lost = [f"{number} {name}" for number, name in enumerate(names) if printable_or(name) != name]
    if not lost:
        return []
    more = f" and {len(lost) - _MOST_TOLD:,} more" if len(lost) > _MOST_TOLD else ""
    remedy = "" if _unicode_font() else "; opencv-python-headless from version 5 on has letters of more scripts"
    told = ", ".join(lost[:_MOST_TOLD])
    return [f'note: no font here has all letters of these names, "?" or the number is drawn: {told}{more}{remedy}']


def legend(entries: Sequence[tuple[str, Color]], height: int, ink: str = "black", paper: str = "white") -> Image.Image:
    """Names beside squares of their colors, from top to bottom, in several columns if need be."""
    rows = max(height // LINE_PX, 1)
    masks = [render_text(printable_or(name, f"number {n}")[:_LONGEST_NAME]) for n, (name, _) in enumerate(entries)]
    columns = [masks[first : first + rows] for first in range(0, len(masks), rows)]
    lefts = np.cumsum([0, *(_SQUARE_PX + 3 * _GAP_PX + max(mask.width for mask in column) for column in columns)])
    canvas = Image.new("RGB", (int(lefts[-1]), LINE_PX * min(rows, len(masks))), paper)
    pen = ImageDraw.Draw(canvas)
    for number, (mask, (_, color)) in enumerate(zip(masks, entries)):
        left, top = int(lefts[number // rows]) + _GAP_PX, number % rows * LINE_PX
        pen.rectangle([left, top + 4, left + _SQUARE_PX, top + 4 + _SQUARE_PX], fill=tuple(color), outline=ink)
        canvas.paste(ink, (left + _SQUARE_PX + 6, top), mask)
    return canvas


@functools.cache
def _is_drawable(letter: str) -> bool:
    if letter.isascii():
        return letter.isprintable()
    return _unicode_font() is not None and not np.array_equal(
        *(_put(one, (LINE_PX, LINE_PX), TEXT_PX) for one in (letter, "?"))
    )


def _put(text: str, shape: tuple[int, int], size_px: int) -> np.ndarray:
    """Text in OpenCV's font, white on black, uint8 of that shape (height, width)."""
    import cv2

    pixels = np.zeros(shape, np.uint8)
    cv2.putText(pixels, text, (0, size_px), (255,), _unicode_font(), size_px, _WEIGHT)
    return pixels


@functools.cache
def _unicode_font() -> Any:
    """OpenCV's; None: it is not installed, or older than version 5."""
    try:
        import cv2

        return cv2.FontFace("uni")
    except (ImportError, AttributeError):
        return None


@functools.cache
def _ascii_font(size_px: int) -> Any:
    try:
        return ImageFont.load_default(size_px)
    except TypeError:  # before Pillow 10.1 it has one size
        return ImageFont.load_default()
