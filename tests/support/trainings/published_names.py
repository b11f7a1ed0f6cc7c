"""A class of each published set, and the score of a network that finds it everywhere, which follows from the labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from support.files.nnunet_folders import make_labels
from support.files.nuscenes import CATEGORIES
from support.processes import ROOT

# Number in SemanticKITTI's files -> class from 1, 0 for none. Source: learning_map of the authors' semantic-kitti.yaml.
_KITTI = {10: 1, 11: 2, 13: 5, 15: 3, 16: 5, 18: 4, 20: 5, 30: 6, 31: 7, 32: 8, 40: 9, 44: 10, 48: 11, 49: 12, 50: 13}
_KITTI |= {51: 14, 60: 9, 70: 15, 71: 16, 72: 17, 80: 18, 81: 19, 252: 1, 253: 7, 254: 6, 255: 8}
_KITTI |= {256: 5, 257: 5, 258: 4, 259: 5}
# NYU's number -> position in the benchmark's list, of the classes that the drawn scenes have.
_SCANNET = {1: 0, 2: 1, 5: 4, 7: 6, 39: 19}
_NUSCENES = json.loads((ROOT / "tests" / "golden" / "nuscenes.json").read_text(encoding="utf-8"))


class Known(NamedTuple):
    """A class of a published set.

    Attributes:
        name: its published name.
        output: its place among the ``outputs`` of a network.
        score: name and value of the score where it is found everywhere: given what the writer of the set returned.
        number: its number in files of predictions.
    """

    name: str
    output: int
    outputs: int
    score: tuple[str, Callable[[Any], float]] | None = None
    number: int | None = None


def _iou(labels: Iterable[np.ndarray], output: int) -> float:
    """The mean IoU where all points or pixels are found to be ``output``; labels below 0 and 255 are none."""
    joined = np.concatenate([np.asarray(each).ravel() for each in labels]).astype(int)
    known = joined[(joined >= 0) & (joined != 255)]
    return float(np.mean(known == output)) / len({*known.tolist(), output})


def _of_maps(output: int) -> tuple[str, Callable[[Any], float]]:
    return "mIoU", lambda truth: _iou([labels for (split, _), labels in truth.items() if split == "val"], output)


def _of_points(output: int, read: Callable[[Any], Iterable[np.ndarray]]) -> tuple[str, Callable[[Any], float]]:
    return "mIoU", lambda truth: _iou(read(truth), output)


def _mapped(numbers: np.ndarray, classes: Mapping[int, int]) -> np.ndarray:
    return np.array([classes.get(number, -1) for number in numbers.tolist()])


def _read_nuscenes(written: Mapping[str, Any]) -> list[np.ndarray]:
    numbers = np.array([_NUSCENES["numbers"][_NUSCENES["classes"][category]] for category in CATEGORIES])
    return [numbers[labels] - 1 for name, (_, labels) in written.items() if name.startswith("scene-0103")]


def _read_scannet(written: Mapping[str, Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [_mapped(labels, _SCANNET) for labels in written["val"]]


def _read_kitti(written: Mapping[Any, Any]) -> list[np.ndarray]:
    return [_mapped(labels & 0xFFFF, _KITTI) - 1 for (drive, _), (_, labels) in written.items() if drive == "08"]


def _read_s3dis(written: Mapping[Any, np.ndarray]) -> list[np.ndarray]:
    classes = {"chair_1": 8, "stairs_1": 12, "wall_2": 2}  # stairs are clutter
    return [np.full(len(rows), classes[name]) for (area, _, name), rows in written.items() if area == 5]


def _dice(_: Any) -> float:
    labels = make_labels(0)
    liver, found = (labels == 5).sum(), (labels != 9).sum()
    return float(2 * liver / (liver + found) / 2)  # no spleen is found


KNOWN = {
    "synsets": Known("n02123045", 1, 3, ("top-1", lambda _: 100 / 7)),
    "lists": Known("tench", 1, 3, ("top-1", lambda _: 200 / 7)),
    "kit": Known("n02119789", 278, 1000, ("top-1", lambda _: 60.0)),
    "class tars": Known("n02123045", 1, 3, ("top-1", lambda _: 100 / 7)),
    "clothes": Known("Ankle boot", 9, 10, ("top-1", lambda _: 60.0)),
    "chexpert": Known("Edema", 5, 14, ("micro F1", lambda _: 4 / 9)),  # 2 right, 2 wrong, 3 others missed
    "coco": Known("dog", 16, 80, number=18),
    "voc": Known("tvmonitor", 2, 3, number=3),
    "yolo": Known("mule", 2, 3, number=2),
    "ade20k": Known("flag", 149, 150, _of_maps(149)),
    "cityscapes": Known("car", 13, 19, _of_maps(13)),
    "voc_segmentation": Known("tvmonitor", 20, 21, _of_maps(20)),
    "pascal_context": Known("wood", 58, 59, _of_maps(58)),
    "coco_stuff": Known("wood", 170, 171, _of_maps(170)),
    "coco_panoptic": Known("rug-merged", 1, 2, _of_maps(1)),
    "label_maps": Known("big dog", 2, 3),
    "labelme": Known("dog", 2, 3),
    "yolo_outlines": Known("soil", 2, 3, _of_maps(2)),
    "scannet": Known("chair", 4, 20, _of_points(4, _read_scannet), 5),
    "nuscenes": Known("car", 3, 16, _of_points(3, _read_nuscenes)),
    "semantic_kitti": Known("road", 8, 19, _of_points(8, _read_kitti), 40),
    "s3dis": Known("chair", 8, 13, _of_points(8, _read_s3dis)),
    "pcd": Known("car", 2, 4, _of_points(2, lambda written: written["val"])),
    "ply": Known("ground", 1, 4, _of_points(1, lambda written: written["val"])),
    "pth": Known("chair", 4, 20, None, 5),
    "pointcept": Known("chair", 4, 20, None, 5),
    "areas of pointcept": Known("chair", 8, 13),
    "modelnet40": Known("night_stand", 2, 3, ("top-1", lambda _: 200 / 7)),
    "nnunet": Known("liver", 2, 3, ("Dice", _dice), 5),
}
