"""OpenCV, for the fast way from a JPEG to training pixels. Optional, and imported only when that way is asked for."""

from __future__ import annotations

from typing import Any

from ..errors import UserError


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
