"""What a network that segments pictures says of new ones: masks, coloured copies, and the share of each class."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...contracts.dataset import Samples
from ...contracts.prediction import Entry, InputSamples, Learned, PredictionWriter, Row
from ...contracts.sample_checks import BadSample
from ...runtime.files import atomic_file
from ..backbone_task import BackboneTask
from ..data.class_lists import published_classes
from ..data.inputs import PICTURES, AnnotatedPictures
from ..drawing import overlaid, palette_of, with_legend
from .data.segmentation_dataset import IGNORED
from .samples import SegmentationSample
from .transforms import EvaluationTransform, evaluation_transform

MASKS, CLASSES = "masks", "classes.txt"  # folder, and file beside it
_NO_LABELS = np.zeros((0, 0), np.uint8)


class AsEvaluated(NamedTuple):
    """A picture without labels as an evaluation would see it."""

    transform: EvaluationTransform

    def __call__(self, picture: Image.Image, generator: np.random.Generator) -> SegmentationSample:
        return SegmentationSample(self.transform(picture), _NO_LABELS, -1, (picture.height, picture.width))


class SegmentationPrediction(BackboneTask):
    """Masks of new pictures."""

    palette: np.ndarray | None = None

    def set_up_from(self, learned: Learned) -> None:
        super().set_up_from(learned)
        colours = learned.data.get("palette")
        if isinstance(colours, str):
            self.palette = np.frombuffer(bytes.fromhex(colours), np.uint8).reshape(-1, 3)

    def name_classes(self, number: int, learned: Learned) -> None:
        """Take the names from the weights; those that say nothing know the classes of their recipe's published data."""
        if not learned.class_names:
            published = published_classes(self.config.DATA.DATASET.removesuffix("_segmentation"), None, 0)
            if len(published.names) == number:
                learned, self.palette = learned._replace(class_names=tuple(published.names)), published.palette
        super().name_classes(number, learned)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        return self.new_pictures(inputs, cache_folder, AsEvaluated(evaluation_transform(self.config.DATA)))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """The share of each class in the pixels of a picture.

        Raises:
            BadSample: the outputs are not finite.
        """
        counts = np.bincount(prediction.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs for it are not finite")
        shares = (counts[: len(self.class_names)] / prediction.size).round(6).tolist()
        return [{f"share {name}": share for name, share in zip(self.class_names, shares)}]

    def prediction_writer(self, folder: Path, samples: Samples) -> PredictionWriter:
        return MaskWriter(folder, samples, self.class_names, palette_of(self, len(self.class_names)))


class MaskWriter(PredictionWriter):
    """Writes ``masks/NAME.png``, whose pixels are numbers of classes from 0 and which shows their colours, of each
    picture; and of a new one ``pictures/NAME.jpg`` under these colours, with their names.

    Args:
        folder: exists.
        samples: of ``open_inputs``, or of a split.
        palette: uint8 (classes, 3).
    """

    writes_evaluations = True

    def __init__(self, folder: Path, samples: Samples, class_names: Sequence[str], palette: np.ndarray) -> None:
        self.folder, self.samples, self.class_names, self.palette = folder, samples, list(class_names), palette
        self._pictures = AnnotatedPictures(folder, samples)

    def write(self, index: int, prediction: np.ndarray, truth: Any = None) -> Row:
        name = f"{MASKS}/{self._pictures.name(index)}.png"
        (self.folder / MASKS).mkdir(exist_ok=True)
        mask = Image.fromarray(prediction)
        mask.putpalette(self.palette.tobytes())
        with atomic_file(self.folder / name) as file:
            mask.save(file, "PNG")
        drawn = self._pictures.write(index, lambda picture: self._drawn(picture, prediction))
        return {"mask": name} if drawn is None else {"mask": name, "picture": drawn}

    def _drawn(self, picture: Image.Image, prediction: np.ndarray) -> Image.Image:
        found = np.unique(prediction).tolist()
        entries = [(self.class_names[number], tuple(self.palette[number].tolist())) for number in found]
        return with_legend(overlaid(np.asarray(picture), prediction, self.palette), entries)

    def finish(self, entries: Iterable[Entry]) -> list[str]:
        if not any(True for _ in entries):
            return []
        with atomic_file(self.folder / CLASSES) as file:
            file.write("".join(f"{name}\n" for name in self.class_names).encode())
        said = f"masks are in {self.folder / MASKS}: the number of a pixel is the line of its class in "
        lines = [f"{said}{self.folder / CLASSES}, from 0"]
        if isinstance(self.samples, InputSamples):
            lines.append(f"pictures under the colours of their classes are in {self.folder / PICTURES}")
        return lines
