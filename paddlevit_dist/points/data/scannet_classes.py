"""The twenty classes of ScanNet's benchmark, their numbers and colors, and its test scenes.

Source: A. Dai et al., "ScanNet: Richly-annotated 3D Reconstructions of Indoor Scenes", CVPR 2017, arXiv 1702.04405, and
the benchmark's documentation and published scripts: class names with their NYU40 ids and colors.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .scene import IGNORED

_NYU40_NUMBERS_AND_COLORS = {
    "wall": (1, (174, 199, 232)),
    "floor": (2, (152, 223, 138)),
    "cabinet": (3, (31, 119, 180)),
    "bed": (4, (255, 187, 120)),
    "chair": (5, (188, 189, 34)),
    "sofa": (6, (140, 86, 75)),
    "table": (7, (255, 152, 150)),
    "door": (8, (214, 39, 40)),
    "window": (9, (197, 176, 213)),
    "bookshelf": (10, (148, 103, 189)),
    "picture": (11, (196, 156, 148)),
    "counter": (12, (23, 190, 207)),
    "desk": (14, (247, 182, 210)),
    "curtain": (16, (219, 219, 141)),
    "refrigerator": (24, (255, 127, 14)),
    "shower curtain": (28, (158, 218, 229)),
    "toilet": (33, (44, 160, 44)),
    "sink": (34, (112, 128, 144)),
    "bathtub": (36, (227, 119, 194)),
    "otherfurniture": (39, (82, 84, 163)),
}
CLASS_NAMES = tuple(_NYU40_NUMBERS_AND_COLORS)
STUFF_CLASSES = ("wall", "floor")  # classes without instances
# For each class, its number in ScanNet's submission files, and its color in ScanNet's scripts.
NYU40_NUMBERS, COLORS = zip(*_NYU40_NUMBERS_AND_COLORS.values())
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
    lines = Path(__file__).with_name("scannet200_classes.txt").read_text(encoding="ascii").splitlines()
    return {name: int(number) for number, _, name in (line.partition(" ") for line in lines)}


def from_nyu40(numbers: np.ndarray) -> np.ndarray:
    """Return the class of NYU40 ids 0 to 40 (points,), int16, -100 for 0 (no annotation) and outside the benchmark."""
    classes = np.full(NUM_NYU40 + 1, IGNORED, np.int16)
    classes[list(NYU40_NUMBERS)] = np.arange(len(CLASS_NAMES))
    return classes[numbers]
