"""ADE20K's own files of segments: label maps for stuff, and maps of instances for things.

Source: Zhou et al., Scene Parsing through ADE20K Dataset, CVPR 2017, and its challenges of 2016 (label maps) and 2017
(instances); which classes are stuff: datasets/prepare_ade20k_pan_seg.py of Mask2Former.
"""

import os

import numpy as np

from ....core.tasks.sample_checks import BadSample
from ...data.label_pixels import read_label_file

LABELS, INSTANCES = "annotations", "annotations_instance"  # folders
DIVISOR = 1_000
STUFF = frozenset(
    [
        *(1, 2, 3, 4, 5, 6, 7, 10, 12, 14, 17, 18, 22, 26, 27, 29, 30, 35, 41, 47, 49, 52, 53, 55, 60, 61, 62, 64, 69),
        *(78, 80, 85, 92, 95, 97, 100, 101, 102, 106, 107, 110, 114, 115, 118, 123, 129, 132, 141, 142, 146),
    ]
)
_THINGS = np.array([0, *(number for number in range(1, 151) if number not in STUFF)])  # by their numbers of instances
_IS_NO_THING = ~np.isin(np.arange(256), _THINGS[1:])  # stuff, and unknown numbers, which the reader refuses


def read_numbers(file: str, max_pixels: int) -> np.ndarray:
    """Return the number of each pixel's segment as ``split_ids`` takes them, int64 (height, width).

    Of a pixel of ``file``, a map of instances, red is the class among the things, and green the number of the object;
    stuff is in the label map of the same name. Things without an object are void.
    """
    place, label_place = (f"{os.sep}{folder}{os.sep}" for folder in (INSTANCES, LABELS))
    label_file = label_place.join(file.rsplit(place, 1))
    instances, labels = (read_label_file(path, max_pixels) for path in (file, label_file))
    if not instances.is_color or labels.is_color:
        raise BadSample(f"expected colors here (red: a class, green: an object), and numbers in {label_file}")
    if instances.values.shape != labels.values.shape:
        sizes = [f"{part.values.shape[1]} x {part.values.shape[0]}" for part in (instances, labels)]
        raise BadSample(f"has {sizes[0]} pixels, but {label_file} has {sizes[1]}")
    classes, objects = instances.values & 255, instances.values >> 8 & 255
    wrong = np.argwhere((objects > 0) & ((classes == 0) | (classes >= len(_THINGS))))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise BadSample(f"pixel ({row}, {column}) is of class {classes[row, column]}: expected 1 to {len(_THINGS) - 1}")
    things = _THINGS[np.minimum(classes, len(_THINGS) - 1)].astype(np.int64)
    numbers = labels.values.astype(np.int64)
    rest = np.where(_IS_NO_THING[np.minimum(numbers, 255)], numbers, 0)
    return np.where(objects > 0, DIVISOR * things + objects, rest)
