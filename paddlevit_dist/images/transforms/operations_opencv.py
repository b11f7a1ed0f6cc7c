"""The operations of the augmentation policies on arrays, with OpenCV: what DATA.DECODER fast uses.

Each takes pixels (height, width, 3) or (height, width) uint8 and the parameter that ``augment_operations`` draws for
the operation of that name. What maps every level to one other level is equal to Pillow's result to the last bit; Color
and Sharpness round where Pillow truncates; shears, shifts and rotations interpolate bicubically with OpenCV's kernel
(a = -0.75, positions to 1/32 of a pixel), where Pillow's is sharper (a = -1).
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from ...errors import UserError
from . import levels
from .operations import Fill


def require_opencv() -> Any:
    """The module ``cv2``, with its own threads off: loader processes already use the cores.

    Raises:
        UserError: it is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise UserError(
            "DATA.DECODER fast needs OpenCV: pip install opencv-python-headless, or use DATA.DECODER exact"
        ) from error
    cv2.setNumThreads(0)
    return cv2


# Pillow's ImageFilter.SMOOTH, the other end of the scale of Sharpness
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=np.float32) / 13


def apply_fast(name: str, pixels: np.ndarray, parameter: Any, fill: Fill) -> Optional[np.ndarray]:
    """The changed pixels; None if only Pillow has the operation ``name``."""
    operation = _OPERATIONS.get(name)
    return None if operation is None else operation(pixels, parameter, fill)


def _look_up(pixels: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``table``: (256,) for all channels, or (256, channels)."""
    table = table.astype(np.uint8)
    return require_opencv().LUT(pixels, table[:, None, :] if table.ndim == 2 else table)


def _histograms(pixels: np.ndarray) -> np.ndarray:
    """Number of pixels at each level: (256, channels)."""
    channels = pixels.reshape(-1, pixels.shape[2] if pixels.ndim == 3 else 1)
    return np.stack([np.bincount(channel, minlength=256) for channel in channels.T], axis=1)


def _per_channel(pixels: np.ndarray, table_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    tables = np.stack([table_of(histogram) for histogram in _histograms(pixels).T], axis=1)
    return _look_up(pixels, tables if pixels.ndim == 3 else tables[:, 0])


def _posterize(pixels: np.ndarray, bits: int, fill: Fill) -> np.ndarray:
    return pixels & np.uint8(levels.posterized(bits)[255])


def _solarize(pixels: np.ndarray, threshold: int, fill: Fill) -> np.ndarray:
    return _look_up(pixels, levels.solarized(threshold))


def _solarize_add(pixels: np.ndarray, addition: int, fill: Fill) -> np.ndarray:
    return _look_up(pixels, levels.solarized_by_adding(addition))


def _grey(pixels: np.ndarray) -> np.ndarray:
    cv2 = require_opencv()
    return pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)


def _contrast(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    return _look_up(pixels, levels.blended(factor, int(_grey(pixels).mean() + 0.5)))


def _color(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    if pixels.ndim == 2:
        return pixels
    cv2 = require_opencv()
    grey = cv2.cvtColor(_grey(pixels), cv2.COLOR_GRAY2RGB)
    return cv2.addWeighted(pixels, factor, grey, 1.0 - factor, 0.0)


def _sharpness(pixels: np.ndarray, factor: float, fill: Fill) -> np.ndarray:
    cv2 = require_opencv()
    changed = cv2.addWeighted(pixels, factor, cv2.filter2D(pixels, -1, _SMOOTH), 1.0 - factor, 0.0)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):  # which Pillow's filter leaves unchanged
        changed[edge] = pixels[edge]
    return changed


def _affine(pixels: np.ndarray, rows: Tuple[float, ...], fill: Fill) -> np.ndarray:
    """``rows``: as for Pillow, from target to source coordinates with pixel centres at halves."""
    cv2 = require_opencv()
    xx, xy, x, yx, yy, y = rows
    # OpenCV's pixel centres are whole numbers.
    matrix = np.array([[xx, xy, x + (xx + xy - 1) / 2], [yx, yy, y + (yx + yy - 1) / 2]])
    height, width = pixels.shape[:2]
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    border = fill if isinstance(fill, tuple) else (fill, fill, fill)
    return cv2.warpAffine(pixels, matrix, (width, height), flags=flags, borderValue=border)


def _rotate(pixels: np.ndarray, degrees: float, fill: Fill) -> np.ndarray:
    """Rotate about the centre, counterclockwise."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = pixels.shape[:2]
    x = width / 2 - cos * width / 2 + sin * height / 2
    y = height / 2 - sin * width / 2 - cos * height / 2
    return _affine(pixels, (cos, -sin, x, sin, cos, y), fill)


_OPERATIONS: Dict[str, Callable[[np.ndarray, Any, Fill], np.ndarray]] = {
    "AutoContrast": lambda pixels, _, fill: _per_channel(pixels, levels.stretched),
    "Equalize": lambda pixels, _, fill: _per_channel(pixels, levels.equalised),
    "Invert": lambda pixels, _, fill: ~pixels,
    "Rotate": _rotate,
    **dict.fromkeys(("Posterize", "PosterizeIncreasing", "PosterizeOriginal"), _posterize),
    **dict.fromkeys(("Solarize", "SolarizeIncreasing"), _solarize),
    "SolarizeAdd": _solarize_add,
    **dict.fromkeys(("Color", "ColorIncreasing", "Desaturate"), _color),
    **dict.fromkeys(("Contrast", "ContrastIncreasing"), _contrast),
    **dict.fromkeys(
        ("Brightness", "BrightnessIncreasing"),
        lambda pixels, factor, fill: _look_up(pixels, levels.blended(factor, 0)),
    ),
    **dict.fromkeys(("Sharpness", "SharpnessIncreasing"), _sharpness),
    "ShearX": lambda pixels, x, fill: _affine(pixels, (1, x, 0, 0, 1, 0), fill),
    "ShearY": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, y, 1, 0), fill),
    "TranslateXRel": lambda pixels, x, fill: _affine(pixels, (1, 0, x * pixels.shape[1], 0, 1, 0), fill),
    "TranslateYRel": lambda pixels, y, fill: _affine(pixels, (1, 0, 0, 0, 1, y * pixels.shape[0]), fill),
}
