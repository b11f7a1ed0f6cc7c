"""Predicted classes as files that other programs read: coloured PLY, pictures, and the text files of ScanNet's
benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np

from ...contracts.task import PredictionWriter
from ...files import atomic_file
from ..data.pictures import coloured, draw_classes, legend_of, palette_of
from ..data.ply import write_coloured_ply
from ..data.scannet_classes import submitted_numbers
from ..data.scene import Scene
from ..data.sheets import sheet, write_png


class SceneWriter(PredictionWriter):
    """Writes the predictions for each scene:

    - ``NAME.ply``, its points coloured by class;
    - ``NAME.png``, the same viewed from above, beside the truth where that is known, with a legend;
    - ``NAME.txt`` with one number per point: ScanNet's class numbers for its twenty classes, as its benchmark requires,
      else the class index.

    Args:
        folder: must exist.
        class_names: one per class.
    """

    def __init__(self, folder: Path, class_names: Sequence[str]) -> None:
        self.folder = folder
        self.class_names = list(class_names)
        self.numbers, self.kind = submitted_numbers(class_names)
        self.palette = palette_of(class_names)
        self.predicted_files = f"NAME.ply coloured by class, NAME.png from above, NAME.txt with {self.kind}"

    def write(
        self,
        name: str,
        xyz: np.ndarray,
        classes: np.ndarray,
        offset: Sequence[float] = (0.0, 0.0, 0.0),
        true: Optional[np.ndarray] = None,
    ) -> List[str]:
        """Write the files of a scene; returns their names.

        Args:
            xyz: float32 (points, 3), metres.
            classes: integers (points,).
            offset: ``Scene.offset``, added in the PLY file.
            true: integers (points,), negative for none; without it, or where no point has a class, nothing is beside
                the prediction.
        """
        names = [f"{name}.ply", f"{name}.txt"]
        write_coloured_ply(self.folder / names[0], xyz, coloured(classes, self.palette), classes, offset)
        with atomic_file(self.folder / names[1]) as file:
            file.writelines(b"%d\n" % number for number in self.numbers[classes].tolist())
        if len(xyz):
            names.append(f"{name}.png")
            write_png(self.folder / names[-1], self._drawn(xyz, classes, true))
        return names

    def write_predicted(self, scene: Scene, prediction: np.ndarray) -> List[str]:
        """Write the files of a scene without truth; returns their names. ``prediction`` is of ``predict_step``."""
        return self.write(scene.name, scene.xyz, prediction, scene.offset)

    def _drawn(self, xyz: np.ndarray, classes: np.ndarray, true: Optional[np.ndarray]) -> np.ndarray:
        shown = [("prediction", classes)]
        if true is not None and (true >= 0).any():
            shown.insert(0, ("truth", true))
        views = [(title, draw_classes(xyz, labels, self.class_names)) for title, labels in shown]
        return sheet(views, legend_of(np.concatenate([labels for _, labels in shown]), self.class_names))

    def finish(self) -> List[str]:
        return [
            f"predictions in {self.folder}: NAME.ply coloured by class, NAME.png with truth (left, if known) and "
            f"prediction, NAME.txt with {self.kind}"
        ]
