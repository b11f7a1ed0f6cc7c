"""The twenty classes of ScanNet's benchmark.

Source: A. Dai et al., "ScanNet: Richly-annotated 3D Reconstructions of Indoor Scenes", CVPR 2017, arXiv 1702.04405, and
the benchmark's documentation: class names with their NYU40 ids.
"""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np

from .scene import IGNORED

_NYU40_NUMBERS = {
    "wall": 1,
    "floor": 2,
    "cabinet": 3,
    "bed": 4,
    "chair": 5,
    "sofa": 6,
    "table": 7,
    "door": 8,
    "window": 9,
    "bookshelf": 10,
    "picture": 11,
    "counter": 12,
    "desk": 14,
    "curtain": 16,
    "refrigerator": 24,
    "shower curtain": 28,
    "toilet": 33,
    "sink": 34,
    "bathtub": 36,
    "otherfurniture": 39,
}
CLASS_NAMES = tuple(_NYU40_NUMBERS)
STUFF = ("wall", "floor")  # classes without instances
NYU40_NUMBERS = tuple(_NYU40_NUMBERS.values())  # of each class, as used in ScanNet's submission files
NUM_NYU40 = 40


def submitted_numbers(class_names: Sequence[str]) -> Tuple[np.ndarray, str]:
    """The number of each class in prediction files, int64 (classes,), and what these numbers are: ScanNet's own for its
    twenty classes, as its benchmark requires, else the class indices themselves."""
    if tuple(class_names) == CLASS_NAMES:
        return np.array(NYU40_NUMBERS, np.int64), "ScanNet's class numbers"
    return np.arange(len(class_names)), "class numbers"


def from_nyu40(numbers: np.ndarray) -> np.ndarray:
    """Class of each NYU40 id, int16, -100 for 0 (no annotation) and for classes outside the benchmark.

    Args:
        numbers: (points,) integers from 0 to 40.
    """
    classes = np.full(NUM_NYU40 + 1, IGNORED, np.int16)
    classes[list(NYU40_NUMBERS)] = np.arange(len(CLASS_NAMES))
    return classes[numbers]
