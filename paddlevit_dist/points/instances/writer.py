"""Predicted instances as files: the benchmark's text format, coloured PLY, and a picture next to the truth."""

from __future__ import annotations

from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ...contracts.task import PredictionWriter
from ...files import atomic_file
from ..data.pictures import UNLABELLED, WIDTH_PX, Colour, class_colours, coloured, draw
from ..data.ply import write_coloured_ply
from ..data.scannet_classes import submitted_numbers
from ..data.scene import IGNORED, Scene
from ..data.sheets import sheet, write_png
from .metrics import Prediction

MASKS_FOLDER = "predicted_masks"
_MOST_NAMED = 60  # predictions in a picture's legend


class InstanceWriter(PredictionWriter):
    """Writes the predictions for each scene:

    - ``NAME.txt``, a line for each instance, best first: its mask file, class number and confidence; and
      ``predicted_masks/NAME_000.txt`` etc. with a 0 or 1 for each point, as ScanNet's benchmark requires. Class numbers
      are ScanNet's for its twenty classes, else the class index.
    - ``NAME_truth.ply`` and ``NAME_prediction.ply``, points coloured by instance, grey for none, labelled with the
      instance number; a prediction has the colour of the true instance that it overlaps most.
    - ``NAME.png``: both, viewed from above, truth on the left, with the class and confidence of each prediction.

    Where the truth is not known, only the prediction is written.

    Args:
        folder: must exist.
        class_names: one per class.
    """

    def __init__(self, folder: Path, class_names: Sequence[str]) -> None:
        self.folder = folder
        self.class_names = list(class_names)
        self.numbers, self.kind = submitted_numbers(class_names)
        self.predicted_files = (
            "NAME_prediction.ply coloured by instance, NAME.png from above, NAME.txt and "
            f"{MASKS_FOLDER}/ with {self.kind}"
        )

    def write(
        self,
        name: str,
        xyz: np.ndarray,
        true_instance: Optional[np.ndarray],
        predictions: List[Prediction],
        offset: Sequence[float] = (0.0, 0.0, 0.0),
    ) -> List[str]:
        """Write the files of a scene of P points; returns the names of those in the folder itself.

        Args:
            xyz: float32 (P, 3), metres.
            true_instance: integers (P,), negative for none; numbers may start anywhere. None: unknown.
            predictions: best first; where they overlap, a point is shown in the best one.
            offset: ``Scene.offset``, added in the PLY files.
        """
        self._write_masks(name, len(xyz), predictions)
        names = [f"{name}.txt"]
        drawn = coloured_instances(true_instance, predictions, len(xyz))
        views = []
        for kind, labels, shown in zip(("truth", "prediction"), (drawn.truth, drawn.predicted), drawn.colours):
            if kind == "truth" and true_instance is None:
                continue
            names.append(f"{name}_{kind}.ply")
            write_coloured_ply(self.folder / names[-1], xyz, shown, labels, offset)
            if len(xyz):
                views.append((kind, draw(xyz, shown, labels >= 0)))
        if views:
            names.append(f"{name}.png")
            write_png(self.folder / names[-1], sheet(views, self._legend(predictions, drawn.palette)))
        return names

    def write_predicted(self, scene: Scene, prediction: Tuple[np.ndarray, List[Prediction]]) -> List[str]:
        """Write the files of a scene without truth; returns their names. ``prediction`` is of ``predict_step``."""
        return self.write(scene.name, scene.xyz, None, prediction[1], scene.offset)

    def _legend(self, predictions: List[Prediction], colours: np.ndarray) -> List[Tuple[str, Colour]]:
        """Class and confidence of the predictions, best first."""
        entries = [
            (f"{self.class_names[found.class_number]} {found.confidence:.2f}", tuple(colour))
            for found, colour in zip(predictions, colours.tolist())
        ]
        left = len(entries) - _MOST_NAMED
        return entries if left <= 0 else [*entries[:_MOST_NAMED], (f"and {left} more", UNLABELLED)]

    def _write_masks(self, name: str, num_points: int, predictions: List[Prediction]) -> None:
        (self.folder / MASKS_FOLDER).mkdir(exist_ok=True)
        lines = []
        for number, prediction in enumerate(predictions):
            mask_file = f"{MASKS_FOLDER}/{name}_{number:03d}.txt"
            mask = np.full((num_points, 2), ord("\n"), np.uint8)
            mask[:, 0] = ord("0")
            mask[prediction.points, 0] = ord("1")
            (self.folder / mask_file).write_bytes(mask.tobytes())
            lines.append(f"{mask_file} {self.numbers[prediction.class_number]} {prediction.confidence:.4f}\n")
        with atomic_file(self.folder / f"{name}.txt") as file:  # last, once everything it lists exists
            file.write("".join(lines).encode())

    def finish(self) -> List[str]:
        return [
            f"predictions in {self.folder}: NAME.txt and {MASKS_FOLDER}/ with {self.kind}, NAME_prediction.ply (and "
            "NAME_truth.ply, if known) coloured by instance, NAME.png with truth (left, if known) and prediction"
        ]


class ColouredInstances(NamedTuple):
    """True and predicted instances of P points in colours of their own.

    Attributes:
        truth, predicted: int64 (P,), from 0, negative for none; the best prediction where several overlap.
        true_palette: uint8 (true instances, 3).
        palette: uint8 (predictions, 3), that of the true instance which a prediction overlaps most.
        colours: uint8 (P, 3) of the truth and of the predictions.
    """

    truth: np.ndarray
    predicted: np.ndarray
    true_palette: np.ndarray
    palette: np.ndarray
    colours: Tuple[np.ndarray, np.ndarray]


def coloured_instances(
    true_instance: Optional[np.ndarray], predictions: List[Prediction], num_points: int
) -> ColouredInstances:
    """Colours of a scene's instances; its true ones are integers (P,), negative for none, or None if unknown."""
    predicted = np.full(num_points, IGNORED, np.int64)
    truth = predicted.copy() if true_instance is None else _numbered(true_instance)
    for number, prediction in reversed(list(enumerate(predictions))):
        predicted[prediction.points] = number
    num_true = int(truth.max(initial=-1)) + 1
    colours = class_colours(num_true + len(predictions))
    same = [_most_overlapped(truth, p.points, num_true + number) for number, p in enumerate(predictions)]
    palette = colours[np.array(same, np.int64)]
    return ColouredInstances(
        truth, predicted, colours[:num_true], palette, (coloured(truth, colours), coloured(predicted, palette))
    )


def draw_instances(xyz: np.ndarray, instance: np.ndarray, width_px: int = WIDTH_PX) -> np.ndarray:
    """Picture by ``draw`` of points (P, 3) with a colour for each instance (P,), grey for none."""
    numbers = _numbered(instance)
    palette = class_colours(int(numbers.max(initial=-1)) + 1)
    return draw(xyz, coloured(numbers, palette), numbers >= 0, width_px)


def _numbered(instance: np.ndarray) -> np.ndarray:
    """The same instances renumbered from 0, -100 for none; int64 (P,)."""
    occurring = np.unique(instance[instance >= 0])
    return np.where(instance >= 0, np.searchsorted(occurring, instance), IGNORED)


def _most_overlapped(truth: np.ndarray, points: np.ndarray, otherwise: int) -> int:
    """The true instance that most of the points belong to; ``otherwise`` if none of them do."""
    own = truth[points]
    own = own[own >= 0]
    return int(np.bincount(own).argmax()) if len(own) else otherwise
