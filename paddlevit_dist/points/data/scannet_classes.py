"""The twenty classes of ScanNet's benchmark, their numbers and colors, and its test scenes.

Source: A. Dai et al., "ScanNet: Richly-annotated 3D Reconstructions of Indoor Scenes", CVPR 2017, arXiv 1702.04405, and
the benchmark's documentation and published scripts: class names with their NYU40 ids and colors.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .scene import IGNORED


def _read_lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="ascii").splitlines()


_ROWS = [
    (name, int(number), (int(red), int(green), int(blue)))
    for number, red, green, blue, name in (line.split(" ", 4) for line in _read_lines("scannet_classes.txt"))
]
# For each class, its name, its number in ScanNet's submission files (NYU40), and its color in ScanNet's scripts.
CLASS_NAMES, NYU40_NUMBERS, COLORS = zip(*_ROWS)
STUFF_CLASSES = ("wall", "floor")  # classes without instances
# The benchmark's hidden test set, which the download keeps in a separate folder.
TEST_FOLDER = "scans_test"
TEST_SCENES = tuple(f"scene{number:04d}_00" for number in range(707, 807))
NUM_NYU40 = 40


def submitted_numbers(class_names: Sequence[str]) -> tuple[np.ndarray, str]:
    """Return the number of each class in prediction files, int64 (classes,), and a description of these numbers.

    They are ScanNet's for its twenty classes or ScanNet200's for its classes, as the benchmarks require, else the class
    indices.
    """
    if tuple(class_names) == CLASS_NAMES:
        return np.array(NYU40_NUMBERS, np.int64), "ScanNet's class numbers"
    if tuple(class_names) == tuple(load_scannet200_classes()):
        return np.array(list(load_scannet200_classes().values()), np.int64), "ScanNet200's class numbers"
    return np.arange(len(class_names)), "class numbers"


@functools.cache
def load_scannet200_classes() -> dict[str, int]:
    """Return the two hundred classes of ScanNet200 in their order, and the number of each in ScanNet's label table.

    Source: D. Rozenberszki et al., "Language-Grounded Indoor 3D Semantic Segmentation in the Wild", ECCV 2022, arXiv
    2204.07761, and its benchmark's table of classes.
    """
    rows = (line.partition(" ") for line in _read_lines("scannet200_classes.txt"))
    return {name: int(number) for number, _, name in rows}


def from_nyu40(numbers: np.ndarray) -> np.ndarray:
    """Return the class of NYU40 ids 0 to 40 (points,), int16, -100 for 0 (no annotation) and outside the benchmark."""
    classes = np.full(NUM_NYU40 + 1, IGNORED, np.int16)
    classes[list(NYU40_NUMBERS)] = np.arange(len(CLASS_NAMES))
    return classes[numbers]
