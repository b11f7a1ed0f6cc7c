"""Predicted instances as files and figures: the benchmark's text format, colored PLY, and images next to the truth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.metrics.tables import round_share
from ...core.runtime.files import atomic_file
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import FigureTable
from ..data.images import UNLABELED_PIXELS, WIDTH_PX, Color, class_colors, color, draw, sheet, write_png
from ..data.scene import IGNORED, Scene
from ..outputs import SceneWriter
from ..scene_figures import Layers
from .matching import InstanceMatchTable, InstancePrediction, flatten_tables
from .panoptic import combine_segments
from .score_kind import class_precisions

MASKS_FOLDER = "predicted_masks"
_MAX_LEGEND_ENTRIES = 60  # predictions in an image's legend


class InstanceWriter(SceneWriter):
    """Writes the predicted instances of each scene.

    - ``NAME.txt``, a line for each instance, best first: its mask file, class number and confidence; and
      ``predicted_masks/NAME_000.txt`` etc. with a 0 or 1 for each point, as ScanNet's benchmark requires. Class numbers
      are ScanNet's for its twenty classes, else the class index.
    - ``NAME_truth.ply`` and ``NAME_prediction.ply``, points colored by instance, gray for none, labeled with the
      instance number, predictions also with the class of each point; a prediction has the color of the true instance
      that it overlaps most.
    - ``NAME.png``: both, viewed from above, truth on the left, with the class and confidence of each prediction.

    If the truth is unknown, only the prediction is written. If predictions overlap, a point is shown in the best one.
    The numbers of true instances may start anywhere.
    """

    files = (
        "NAME_prediction.ply (and NAME_truth.ply, if known) colored by instance, NAME.png from above with truth "
        f"(left, if known) and prediction, NAME.txt and {MASKS_FOLDER}/"
    )

    has_instances = True

    def __init__(
        self, folder: Path, samples: TransformedDataset, class_names: Sequence[str], instance_classes: Sequence[int]
    ) -> None:
        super().__init__(folder, samples, class_names)
        self.is_thing = np.isin(np.arange(len(self.class_names)), list(instance_classes))

    def segment_labels(self, prediction: tuple[np.ndarray, list[InstancePrediction]]) -> tuple[np.ndarray, np.ndarray]:
        """Return class and instance of each point as panoptic quality counts them."""
        return combine_segments(*prediction, self.is_thing)

    def point_labels(self, prediction: tuple[np.ndarray, list[InstancePrediction]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the class and the instance of each point."""
        return prediction[0], get_point_instances(prediction[1], len(prediction[0]))

    def write_scene(
        self, scene: Scene, prediction: tuple[np.ndarray, list[InstancePrediction]], true: np.ndarray | None = None
    ) -> list[str]:
        """Write all files of a scene; return the names of those directly in the folder."""
        name, xyz, predictions = scene.name, scene.xyz, prediction[1]
        self._write_masks(scene, predictions)
        names = [f"{name}.txt"]
        colored = color_instances(true, predictions, len(xyz))
        views = []
        for kind, labels, colors in zip(("truth", "prediction"), (colored.truth, colored.predicted), colored.colors):
            if kind == "truth" and true is None:
                continue
            names.insert(0, f"{name}_{kind}.ply")
            classes = prediction[0] if kind == "prediction" else None
            self.write_ply(names[0], scene, colors, labels, classes)
            if len(xyz):
                views.append((kind, draw(xyz, colors, labels >= 0)))
        if views:
            names.append(f"{name}.png")
            write_png(self.folder / names[-1], sheet(views, self.build_scene_legend(predictions, colored.palette)))
        return names

    def build_scene_legend(self, predictions: list[InstancePrediction], colors: np.ndarray) -> list[tuple[str, Color]]:
        """Return name and color of the predictions, best first, at most ``_MAX_LEGEND_ENTRIES``."""
        entries = _build_legend(predictions, colors, self.class_names)
        num_hidden = len(entries) - _MAX_LEGEND_ENTRIES
        return (
            entries
            if num_hidden <= 0
            else [*entries[:_MAX_LEGEND_ENTRIES], (f"and {num_hidden} more", UNLABELED_PIXELS)]
        )

    def _write_masks(self, scene: Scene, predictions: list[InstancePrediction]) -> None:
        """Write mask files with a row for each point of the source; skipped points are in no mask."""
        name, rows = scene.name, scene.to_source_rows(np.arange(len(scene.xyz)))
        places = np.flatnonzero(rows >= 0)
        (self.folder / MASKS_FOLDER).mkdir(exist_ok=True)
        lines = []
        for number, prediction in enumerate(predictions):
            mask_file = f"{MASKS_FOLDER}/{name}_{number:03d}.txt"
            mask = np.full((len(rows), 2), ord("\n"), np.uint8)
            mask[:, 0] = ord("0")
            mask[places[prediction.points], 0] = ord("1")
            with atomic_file(self.folder / mask_file) as file:
                file.write(mask.tobytes())
            lines.append(f"{mask_file} {self.numbers[prediction.class_number]} {prediction.confidence:.4f}\n")
        with atomic_file(self.folder / f"{name}.txt") as file:  # last, once everything it lists exists
            file.write("".join(lines).encode())


class ColoredInstances(NamedTuple):
    """True and predicted instances of P points in colors."""

    truth: np.ndarray  # truth, predicted: int64 (P,), from 0, negative for none; the best prediction if several overlap
    predicted: np.ndarray
    true_palette: np.ndarray  # uint8 (true instances, 3)
    palette: np.ndarray  # uint8 (predictions, 3), the color of the true instance that a prediction overlaps most
    colors: tuple[np.ndarray, np.ndarray]  # uint8 (P, 3) of the truth and of the predictions


def get_point_instances(predictions: list[InstancePrediction], num_points: int) -> np.ndarray:
    """Return the index of the best prediction that contains each point, int64 (points,); -100 for none."""
    instance = np.full(num_points, IGNORED, np.int64)
    for number, prediction in reversed(list(enumerate(predictions))):
        instance[prediction.points] = number
    return instance


def color_instances(
    true_instance: np.ndarray | None, predictions: list[InstancePrediction], num_points: int
) -> ColoredInstances:
    """Return colors of a scene's instances; true ones are integers (P,), negative for none, or None if unknown."""
    predicted = get_point_instances(predictions, num_points)
    truth = np.full(num_points, IGNORED, np.int64) if true_instance is None else _renumber(true_instance)
    num_true = int(truth.max(initial=-1)) + 1
    colors = class_colors(num_true + len(predictions))
    color_rows = [_find_most_overlapped(truth, p.points, num_true + number) for number, p in enumerate(predictions)]
    palette = colors[np.array(color_rows, np.int64)]
    return ColoredInstances(
        truth, predicted, colors[:num_true], palette, (color(truth, colors), color(predicted, palette))
    )


def draw_instances(xyz: np.ndarray, instance: np.ndarray, width_px: int = WIDTH_PX) -> np.ndarray:
    """Draw points (P, 3) with a color for each instance (P,), gray for none."""
    numbers = _renumber(instance)
    palette = class_colors(int(numbers.max(initial=-1)) + 1)
    return draw(xyz, color(numbers, palette), numbers >= 0, width_px)


def _renumber(instance: np.ndarray) -> np.ndarray:
    """Renumber instances from 0, -100 for none; int64 (P,)."""
    instances = np.unique(instance[instance >= 0])
    return np.where(instance >= 0, np.searchsorted(instances, instance), IGNORED)


def _find_most_overlapped(truth: np.ndarray, points: np.ndarray, default: int) -> int:
    """Return the true instance that most of the points belong to; ``default`` if none of them do."""
    instances = truth[points]
    instances = instances[instances >= 0]
    return int(np.bincount(instances).argmax()) if len(instances) else default


def precision_table(tables: Sequence[InstanceMatchTable], class_names: Sequence[str]) -> FigureTable:
    """Return a table of the average precision of each class that has instances, from the match tables of all scenes."""
    matches = flatten_tables(tables)
    precisions = class_precisions(matches, np.ones((1, len(tables)))).values()  # (1, classes) each
    rows: list[tuple[Any, ...]] = [
        (name, *(round_share(kind[0, number]) for kind in precisions), int(matches["num_true"][:, number].sum()))
        for number, name in enumerate(class_names)
    ]
    shares, note = ("AP", "AP50", "AP25"), "Empty: the class has no true instance."
    return FigureTable(
        "Average precision of instances", ("class", *shares, "true instances"), rows, note, shares=shares
    )


def _build_legend(
    predictions: list[InstancePrediction], palette: np.ndarray, class_names: Sequence[str]
) -> list[tuple[str, Color]]:
    """Return class and confidence of each prediction, with its color."""
    colors = map(tuple, palette.tolist())
    return [(f"{class_names[p.class_number]} {p.confidence:.2f}", color) for p, color in zip(predictions, colors)]


def instance_layers(scene: Scene, predictions: list[InstancePrediction], class_names: Sequence[str]) -> Layers:
    """Return layers and legends: true and predicted instances; those that overlap most share a color."""
    colored = color_instances(scene.instance, predictions, len(scene.xyz))
    first = [int(np.flatnonzero(colored.truth == number)[0]) for number in range(len(colored.true_palette))]
    true_legend = [
        (class_names[label] if label >= 0 else "no class", tuple(color))
        for label, color in zip(scene.semantic[first].tolist(), colored.true_palette.tolist())
    ]
    names = "true instances", "predicted instances"
    return dict(zip(names, colored.colors)), dict(
        zip(names, (true_legend, _build_legend(predictions, colored.palette, class_names)))
    )
