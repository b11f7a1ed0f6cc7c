"""Prediction of the class of each point: rows and files."""

from pathlib import Path

import numpy as np
import paddle

from ...core.runtime.files import atomic_file
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, Row
from ...core.tasks.sample_checks import BadSample
from ..data.images import build_legend, color, draw_classes, get_palette, sheet, write_png
from ..data.scene import IGNORED, Scene
from ..inputs import count_points
from ..outputs import SceneWriter
from ..scene_prediction import ScenePrediction, pack_numbers
from ..scene_task import get_slices
from .task import SemanticSegmentation


class SemanticPrediction(ScenePrediction):
    """Predicts the class of each point."""

    task: SemanticSegmentation

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[np.ndarray]:
        """Return the class of each point, int64 (points,), for each scene; -1 if its outputs are not finite."""
        labels = paddle.zeros_like(batch["labels"])  # the loss of any class is NaN where outputs are
        classes, losses = self.task.score(model, {**batch, "labels": labels})
        classes = np.where(np.isnan(losses.numpy()), -1, classes.numpy())
        return [classes[part] for part in get_slices(batch)]

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> "SceneClassWriter":
        """Return the writer of predicted classes."""
        return SceneClassWriter(folder, samples, self.task.class_names)

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the number of points of each class as a table row; BadSample if outputs are not finite."""
        if (prediction < 0).any():
            raise BadSample("the model's outputs for it are not finite")
        return [count_points(prediction, self.task.class_names)]

    def prediction_arrays(self, index: int, prediction: np.ndarray, samples: InputSamples) -> ArrayMakers:
        """Return the class of each point."""
        return {"classes": pack_numbers(prediction, len(self.task.class_names), index, samples)}


class SceneClassWriter(SceneWriter):
    """Writes the predicted classes of each scene.

    - ``NAME.ply``, its points colored by class, also those without coordinates;
    - ``NAME.png``, the points viewed from above, next to the truth if it is known, with a legend;
    - ``NAME.txt`` with one number per point: ScanNet's class numbers for its twenty classes, as its benchmark requires,
      else the class index; 0 or -100 for skipped points, which have no finite coordinates.
    """

    files = "NAME.ply colored by class, NAME.png from above with truth (left, if known) and prediction, NAME.txt"

    def write_scene(self, scene: Scene, prediction: np.ndarray, true: np.ndarray | None = None) -> list[str]:
        """Write all files of a scene; return their names."""
        names = [f"{scene.name}.ply", f"{scene.name}.txt"]
        colors = color(prediction, get_palette(self.class_names))
        self.write_ply(names[0], scene, colors, prediction)
        with atomic_file(self.folder / names[1]) as file:
            fill_value = IGNORED if 0 in self.numbers else 0  # 0 is ScanNet's number for no class
            numbers = scene.to_source_rows(self.numbers[prediction].astype(np.int64), fill_value)
            file.writelines(b"%d\n" % number for number in numbers.tolist())
        if len(scene.xyz):
            names.append(f"{scene.name}.png")
            labels_by_title = {"prediction": prediction}
            if true is not None and (true >= 0).any():
                labels_by_title = {"truth": true, **labels_by_title}
            views = [
                (title, draw_classes(scene.xyz, labels, self.class_names)) for title, labels in labels_by_title.items()
            ]
            legend = build_legend(np.concatenate([*labels_by_title.values()]), self.class_names)
            write_png(self.folder / names[-1], sheet(views, legend))
        return names
