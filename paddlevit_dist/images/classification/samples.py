"""Samples of image classification: a split with its transform, and new images with the transform of an evaluation."""

import collections
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.tasks.dataset import TransformedDataset, dataset_class
from ...core.tasks.sample_checks import BadSample
from ..data.image_dataset import ImageDataset
from ..data.quarantine import ReplacementReader
from ..data.reading import count_labels, label_parts
from ..transforms.albumentations_file import AlbumentationsFile
from ..transforms.crops import EvaluationTransform, GlyphTransform
from ..transforms.on_device import RandomErasing
from ..transforms.policies import get_fill
from ..transforms.views import ViewsTransform
from .class_balance import draw_balanced_order
from .settings import ClassificationDataSection, ClassificationSettings, has_test_views

_MOST_CLASSES_SHOWN = 20


class ClassificationSamples(TransformedDataset):
    """A dataset of images with its transform, as loader processes read it."""

    def __init__(
        self, dataset: ImageDataset, transform: Callable[..., Any], erasing: RandomErasing | None = None
    ) -> None:
        self.dataset = dataset
        self.notices: list[str] = []
        self.transform = transform
        self.erasing = erasing
        self.reader: Callable[[int], Any] = dataset.read
        self.replacements: ReplacementReader | None = None  # replaces unreadable images
        self.is_balanced = False
        self.augmentation: AlbumentationsFile | None = None
        num_skipped = dataset.skipped_files.num_images if dataset.skipped_files else 0
        self.exclusions = (
            f"without {num_skipped:,} image{'s' * (num_skipped > 1)} not opened here" if num_skipped else ""
        )

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return ``(image, label)``: uint8 ``(channels, size, size)`` and an int; with erasing, also what to erase."""
        if self.replacements is None:
            stored, label = self.reader(index)
        else:
            stored, label = self.replacements.read(self.reader, index, self.dataset)
        if self.augmentation is not None:
            stored = self.augmentation.augment_image(stored, generator)
        image = self.transform(stored, generator)
        if self.erasing is None:
            return image, label
        return image, label, self.erasing.draw(image.shape, generator)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """Draw the order of an epoch, in which classes are balanced if they are to be."""
        return (
            draw_balanced_order(self.dataset.labels, generator) if self.is_balanced else super().draw_order(generator)
        )

    # the dataset knows them
    class_names = property(lambda samples: samples.dataset.class_names)
    is_random_split = property(lambda samples: samples.dataset.is_random_split)

    def class_numbers(self) -> np.ndarray | None:
        """Return how many images each class has, int (classes,); None if labels are not known."""
        labels = self.dataset.labels
        return None if labels is None else count_labels(np.asarray(labels), self.dataset.num_classes)

    def describe_classes(self) -> str:
        """Return how many images each class has, to follow the number of images; empty if labels are not known."""
        numbers = self.class_numbers()
        if numbers is None:
            return ""
        if len(numbers) > _MOST_CLASSES_SHOWN:
            return f" of {len(numbers):,} classes, {numbers.min():,} to {numbers.max():,} each"
        names = self.class_names or range(len(numbers))
        return ": " + ", ".join(f"{name} {number:,}" for name, number in zip(names, numbers))

    def count_classes(self) -> dict[str, int] | None:
        """Return ``class_numbers`` by name; classes of the same name count together."""
        numbers, named = self.class_numbers(), collections.Counter[str]()
        for label, number in enumerate(() if numbers is None else numbers.tolist()):
            named[str(self.class_names[label] if self.class_names else label)] += number
        return dict(named) or None

    def identify(self) -> dict[str, Any]:
        """Return what identifies the data in addition to their number: labels and classes."""
        facts: dict[str, Any] = {"number of classes": self.dataset.num_classes}
        if self.dataset.labels is not None:
            digest = hashlib.sha256()
            for part in label_parts(np.asarray(self.dataset.labels)):
                digest.update(part.astype("<i8", copy=False).data)
            facts["labels"] = digest.hexdigest()[:16]
        if self.class_names is not None:
            facts["classes"] = list(map(str, self.class_names))
        return facts


def find_dataset_class(config: ClassificationSettings) -> type[ImageDataset]:
    """Return the class of the configured dataset; ``ImageDataset`` if a user's class is not registered here."""
    try:
        return dataset_class(config, ImageDataset)
    except UserError:
        return ImageDataset


def evaluation_transform(data: ClassificationDataSection, kind: str) -> EvaluationTransform | GlyphTransform:
    """Build the transform of an evaluation of images of a kind, "photo" or "glyph"."""
    if kind == "glyph":
        return GlyphTransform(data.IMAGE_SIZE, train=False, channels=data.IMAGE_CHANNELS)
    resize = data.INTERPOLATION, data.CROP_MODE, get_fill(data.IMAGENET_MEAN)
    return EvaluationTransform(data.IMAGE_SIZE, data.CROP_PCT, data.IMAGE_CHANNELS, *resize)


def build_view_transform(data: ClassificationDataSection, kind: str) -> ViewsTransform | None:
    """Build the transform of DATA.TEST_VIEWS and TEST_SCALES; None: one view, as ``evaluation_transform`` makes it."""
    if not has_test_views(data) or kind == "glyph":
        return None
    plain = evaluation_transform(data, kind)
    assert isinstance(plain, EvaluationTransform)
    return ViewsTransform.build(plain, data.TEST_VIEWS, data.TEST_SCALES)


class ClassificationInput(NamedTuple):
    """The input transform of predictions.

    Scaled images of more than ``largest`` pixels are refused: scaling the shorter side of narrow ones fills the memory.
    """

    transform: Callable[..., Any]
    largest: int

    def __call__(self, image: Image.Image, generator: np.random.Generator) -> tuple[np.ndarray, int]:
        """Transform an image; return it with the unused label 0; a ``BadSample`` if it would be too large."""
        if isinstance(self.transform, (EvaluationTransform, ViewsTransform)):
            width, height = self.transform.resized(image.size)
            if width * height > self.largest:
                size = "{} x {}".format(*image.size)
                raise BadSample(f"an image of {size} pixels would be scaled to {width} x {height}: crop it")
        return self.transform(image, generator), 0
