"""Frames of video files, read by OpenCV where it is installed."""

from __future__ import annotations

import os
from typing import Any, List

import numpy as np
from PIL import Image

from ...errors import UserError
from .reading import UnreadablePicture

SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")


def is_video(path: str) -> bool:
    """Whether a file is called as videos are."""
    return path.lower().endswith(SUFFIXES)


def moments(path: str) -> List[int]:
    """The time of each frame in milliseconds. Decodes the whole file: what a file says of its length is an estimate.

    Raises:
        UserError: OpenCV is not installed, or finds no frames.
    """
    capture, times = _opened(path), []
    while capture.grab():
        times.append(round(capture.get(0)))  # CAP_PROP_POS_MSEC
    if not times:
        raise UserError("OpenCV finds no frames in this video")
    return times


class Video:
    """A video file; its frames are best asked for in ascending order. For one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._capture, self._next = _opened(path), 0

    def frame(self, number: int) -> Image.Image:
        """Frame ``number`` from 0, RGB. Counted and not looked up, which is inexact for many formats.

        Raises:
            UnreadablePicture: the video has become shorter.
        """
        if number < self._next:
            self._capture, self._next = _opened(self.path), 0
        while self._next <= number:
            if not self._capture.grab():
                raise UnreadablePicture(self.path, f"it has no frame {number} any more")
            self._next += 1
        _, pixels = self._capture.retrieve()
        return Image.fromarray(np.ascontiguousarray(pixels[:, :, ::-1]))


def _opened(path: str) -> Any:
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # nothing: what is wrong with a file is told in one line
    try:
        import cv2
    except ImportError as error:
        raise UserError("a video, which OpenCV reads: python -m pip install opencv-python-headless") from error
    set_level = cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel  # before, from 5.0 on
    set_level(2)  # errors
    return cv2.VideoCapture(os.path.abspath(path), cv2.CAP_FFMPEG)
