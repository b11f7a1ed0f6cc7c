"""Prediction of segments: rows of a table, files in COCO's panoptic format, and drawings."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import agree, count
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, PredictionRecord, PredictionWriter, Row, pack_array
from ...core.tasks.sample_checks import BadSample
from ..backbone_prediction import BackbonePrediction
from ..data.inputs import IMAGES, AnnotatedImages
from ..drawing import add_legend, get_palette
from ..mask_queries.segments import MaskView
from .data.segments import Segments
from .drawing import draw_segments, number_colors
from .samples import PanopticSample
from .scored_files import RESULTS
from .task import PanopticSegmentation
from .transforms import PanopticEvaluationTransform, build_evaluation_transform

MAPS = RESULTS.removesuffix(".json")  # folder
_COLUMNS = ("segment", "category", "score", "area", "x", "y", "width", "height")


class SegmentPrediction(BackbonePrediction):
    """Predicts the segments of images."""

    task: PanopticSegmentation

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[Segments | None]:
        """Return the segments of each image at its stored size; None where outputs are not finite."""
        return self.task.predict_batch(model, batch)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images at paths, or in memory, with the transform of an evaluation."""
        return self._open_images(inputs, cache_folder, PanopticInput(build_evaluation_transform(self.task.config)))

    def prediction_rows(self, prediction: Segments | None) -> list[Row]:
        """Return a row for each segment; one empty row if there is none. BadSample: outputs are not finite."""
        if prediction is None:
            raise BadSample("the model's outputs for it are not finite")
        boxes, rows = find_boxes(prediction), []
        scores = [None] * len(boxes) if prediction.scores is None else prediction.scores.tolist()
        for row, (label, score, area) in enumerate(zip(prediction.labels.tolist(), scores, prediction.areas.tolist())):
            shown = None if score is None else round(score, 4)
            rows.append(dict(zip(_COLUMNS, (row + 1, self.task.class_names[label], shown, area, *boxes[row]))))
        return rows or [dict.fromkeys(_COLUMNS)]

    def prediction_arrays(self, index: int, prediction: Segments, samples: InputSamples) -> ArrayMakers:
        """Return the segment of each pixel, as in the rows, and the class of each segment."""
        classes = prediction.labels.astype(np.min_scalar_type(len(self.task.class_names) - 1))
        return {"segments": pack_array(number_segments(prediction)), "classes": pack_array(classes)}

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of maps of segments, their JSON file and drawings."""
        return SegmentWriter(folder, dataset, self.task)


class PanopticInput:
    """The input transform of predictions."""

    def __init__(self, transform: PanopticEvaluationTransform) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> PanopticSample:
        """Transform an image; it has no segments."""
        pixels, inner = self.transform(image)
        return PanopticSample(pixels, None, -1, MaskView(pixels.shape[1:], inner, (image.height, image.width)))


def number_segments(segments: Segments) -> np.ndarray:
    """Return the number of each pixel's segment, from 1, 0 without one, in the smallest unsigned type."""
    return (segments.places + 1).astype(np.min_scalar_type(len(segments.labels)))


def find_boxes(segments: Segments) -> list[list[int]]:
    """Return x, y, width and height of each segment's pixels; zeros for one without a pixel."""
    boxes = []
    for row in range(len(segments.labels)):
        is_inside = segments.places == row
        rows, columns = (np.flatnonzero(is_inside.any(axis=axis)) for axis in (1, 0))
        ends = [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1] if len(rows) else [0] * 4
        boxes.append([int(end) for end in ends])
    return boxes


class SegmentWriter(PredictionWriter):
    """Writes results in COCO's panoptic format: ``panoptic/NAME.png`` for each image, and ``panoptic.json``.

    For new images, also writes a copy with the colors of the segments' classes and a legend to the folder ``IMAGES``.
    ``folder`` exists.
    """

    writes_evaluations = True
    folders = (MAPS, IMAGES)

    def __init__(self, folder: Path, samples: TransformedDataset, task: PanopticSegmentation) -> None:
        self.folder, self.samples, self.class_names = folder, samples, list(task.class_names)
        self.palette, self.is_thing = get_palette(task, len(self.class_names)), list(task.is_thing)
        self.category_ids = [int(number) for number in task.category_ids]
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: Segments, truth: object = None) -> Row:
        """Write the map of an image, and the image with the colors of its segments."""
        name = f"{MAPS}/{self._images.name(index)}.png"
        numbers = np.insert(number_colors(prediction.labels, self.palette), 0, 0)[number_segments(prediction)]
        (self.folder / MAPS).mkdir(exist_ok=True)
        channels = np.stack([numbers & 255, numbers >> 8 & 255, numbers >> 16], axis=2).astype(np.uint8)
        with atomic_file(self.folder / name) as file:
            Image.fromarray(channels).save(file, "PNG")
        drawn = self._images.write(index, lambda image: self._draw(image, prediction))
        return {"map": name} if drawn is None else {"map": name, "picture": drawn}

    def _draw(self, image: Image.Image, prediction: Segments) -> Image.Image:
        labels = np.unique(prediction.labels).tolist()
        entries = [(self.class_names[label], tuple(self.palette[label].tolist())) for label in labels]
        return add_legend(draw_segments(np.asarray(image), prediction, self.palette), entries)

    def summarize(self, index: int, prediction: Segments, truth: object = None) -> dict[str, Any]:
        """Return the entries of an image in the JSON file."""
        samples = self.samples
        is_input = isinstance(samples, InputSamples)
        image_id = index + 1 if is_input or not hasattr(samples, "dataset") else samples.dataset.image_id(index)
        name = samples.names[index] if isinstance(samples, InputSamples) else samples.name(index)
        height, width = prediction.places.shape
        scores = [None] * len(prediction.labels) if prediction.scores is None else prediction.scores.tolist()
        columns = (
            number_colors(prediction.labels, self.palette).tolist(),
            prediction.labels.tolist(),
            prediction.areas.tolist(),
            find_boxes(prediction),
            scores,
        )
        segments = [
            {"id": number, "category_id": self.category_ids[label], "area": area, "bbox": box, "iscrowd": 0}
            | ({} if score is None else {"score": score})
            for number, label, area, box, score in zip(*columns)
        ]
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # valid in JSON
        return {
            "image": {"id": image_id, "file_name": text, "height": height, "width": width},
            "annotation": {
                "image_id": image_id,
                "file_name": f"{self._images.name(index)}.png",
                "segments_info": segments,
            },
        }

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the JSON file; return lines about the files."""
        found = [entry.summary for entry in entries if entry.summary is not None]
        if not found:
            return []
        columns = zip(self.category_ids, self.class_names, self.is_thing, self.palette.tolist())
        categories = [
            {"id": number, "name": name, "isthing": int(is_thing), "color": color}
            for number, name, is_thing, color in columns
        ]
        content = {
            "images": [each["image"] for each in found],
            "annotations": [each["annotation"] for each in found],
            "categories": categories,
        }
        with atomic_file(self.folder / RESULTS) as file:
            file.write(format_json(content).encode())
        number = sum(len(each["annotation"]["segments_info"]) for each in found)
        lines = [
            f"{count(number, 'segment')} of {count(len(found), 'image')} {agree(number)} in {self.folder / RESULTS}, "
            f"with maps in {self.folder / MAPS}, in COCO's panoptic format"
        ]
        if isinstance(self.samples, InputSamples):
            lines.append(f"images with the colors of their classes are in {self.folder / IMAGES}")
            lines += self._images.notes()
        return lines
