"""Predictions as files that other programs read: coloured PLY, and the text files of ScanNet's benchmark."""

from __future__ import annotations

import colorsys
import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np

from ...contracts.task import PredictionWriter
from ...files import atomic_file
from ..data.ply import write_points
from ..data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS
from ..data.scene import Scene


def write_coloured_ply(
    path: Path,
    xyz: np.ndarray,
    colours: np.ndarray,
    labels: np.ndarray,
    offset: Sequence[float] = (0.0, 0.0, 0.0),
) -> None:
    """Write points with colours and labels as a binary PLY file; a file of that name is replaced at the end.

    Args:
        xyz: float32 (P, 3), metres.
        colours: uint8 (P, 3).
        labels: integers (P,), of at most 16 bits.
        offset: ``Scene.offset``, added so that the file has the coordinates of the source; then they are doubles.
    """
    moved = xyz.astype(np.float64) + offset if any(offset) else xyz.astype(np.float32)
    columns = dict(zip("xyz", moved.T))
    columns.update(zip(("red", "green", "blue"), colours.T))
    write_points(path, {**columns, "label": labels.astype(np.int16)})


def class_colours(number: int) -> np.ndarray:
    """uint8 (number, 3): colours far from each other, the same for the same class whatever the number."""
    golden = (5**0.5 - 1) / 2  # multiples of it, modulo 1, fill the circle of hues evenly
    colours = [colorsys.hsv_to_rgb(i * golden % 1, (0.9, 0.55, 0.75)[i % 3], (0.95, 0.8)[i % 2]) for i in range(number)]
    return np.rint(255 * np.array(colours).reshape(number, 3)).astype(np.uint8)


class SceneWriter(PredictionWriter):
    """Writes what is predicted for each scene: ``NAME.ply`` coloured by class, and ``NAME.txt`` with one number per
    point: ScanNet's class numbers for its twenty classes, as its benchmark wants them, else the class itself.

    Args:
        folder: exists.
        class_names: one per class.
    """

    def __init__(self, folder: Path, class_names: Sequence[str]) -> None:
        self.folder = folder
        self.is_scannet = tuple(class_names) == CLASS_NAMES
        self.numbers = np.array(NYU40_NUMBERS if self.is_scannet else range(len(class_names)), np.int64)
        self.colours = class_colours(len(class_names))

    @staticmethod
    def pack(scenes: Sequence[Scene]) -> Dict[str, Any]:
        """What has to travel in the batch for it: ``xyz`` float32 (P, 3), and names, sizes and offsets as text."""
        listed = [(scene.name, len(scene.xyz), scene.offset) for scene in scenes]  # JSON keeps all digits
        return {"xyz": np.concatenate([scene.xyz for scene in scenes]), "scenes": json.dumps(listed)}

    @staticmethod
    def divide(batch: Dict[str, Any], rows: np.ndarray) -> List[np.ndarray]:
        """The rows (P, ...) of all points of a packed batch, scene by scene."""
        ends = np.cumsum([size for _, size, _ in json.loads(batch["scenes"])])
        return np.split(rows[: ends[-1]], ends[:-1])

    def write(self, batch: Dict[str, Any], predictions: Sequence[np.ndarray]) -> None:
        """Write the files of a packed batch: ``predictions`` integers (points,), for each scene."""
        start, xyz = 0, batch["xyz"].numpy()
        for (name, size, offset), classes in zip(json.loads(batch["scenes"]), predictions):
            rows = slice(start, start + size)
            write_coloured_ply(self.folder / f"{name}.ply", xyz[rows], self.colours[classes], classes, offset)
            with atomic_file(self.folder / f"{name}.txt") as file:
                file.writelines(b"%d\n" % number for number in self.numbers[classes].tolist())
            start += size

    def finish(self) -> List[str]:
        kind = "ScanNet's class numbers" if self.is_scannet else "class numbers"
        return [f"predictions in {self.folder}: NAME.ply coloured by class, NAME.txt with {kind}"]
