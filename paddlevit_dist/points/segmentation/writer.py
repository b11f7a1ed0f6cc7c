"""Predicted classes as files that other programs read: coloured PLY, and the text files of ScanNet's benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

import numpy as np

from ...contracts.task import PredictionWriter
from ...files import atomic_file
from ..data.pictures import class_colours
from ..data.ply import write_coloured_ply
from ..data.scannet_classes import submitted_numbers


class SceneWriter(PredictionWriter):
    """Writes the predictions for each scene: ``NAME.ply`` coloured by class, and ``NAME.txt`` with one number per
    point: ScanNet's class numbers for its twenty classes, as its benchmark requires, else the class index.

    Args:
        folder: must exist.
        class_names: one per class.
    """

    def __init__(self, folder: Path, class_names: Sequence[str]) -> None:
        self.folder = folder
        self.numbers, self.kind = submitted_numbers(class_names)
        self.colours = class_colours(len(class_names))

    def write(self, name: str, xyz: np.ndarray, classes: np.ndarray, offset: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        """Write the files of a scene.

        Args:
            xyz: float32 (points, 3), metres.
            classes: integers (points,).
            offset: ``Scene.offset``, added in the PLY file.
        """
        write_coloured_ply(self.folder / f"{name}.ply", xyz, self.colours[classes], classes, offset)
        with atomic_file(self.folder / f"{name}.txt") as file:
            file.writelines(b"%d\n" % number for number in self.numbers[classes].tolist())

    def finish(self) -> List[str]:
        return [f"predictions in {self.folder}: NAME.ply coloured by class, NAME.txt with {self.kind}"]
