"""Samples of images with several labels."""

import hashlib
from typing import Any

import numpy as np

from ..classification.samples import ClassificationSamples

_MOST_CLASSES_SHOWN = 20
_LARGEST_SEED = 1 << 31


class MultiLabelSamples(ClassificationSamples):
    """A dataset of images with several labels and its transform, as loader processes read it.

    With ``is_training``, a sample also has what to draw for its batch.
    """

    is_training = False

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return ``(image, labels)``: uint8 ``(channels, size, size)`` and int8 ``(classes,)``.

        In training, a seed for the mix of its batch follows; with erasing, also what to erase.
        """
        image, labels, *erased = super().sample(index, generator)
        if not self.is_training:
            return image, labels
        return image, labels, int(generator.integers(_LARGEST_SEED)), *erased

    @property
    def label_matrix(self) -> np.ndarray:
        """Labels of all images, int8 (samples, classes)."""
        matrix = self.dataset.label_matrix
        assert matrix is not None  # the task has checked it
        return matrix

    def class_numbers(self) -> np.ndarray:
        """Return how many images are known to have each label, int (classes,)."""
        return (self.label_matrix == 1).sum(axis=0)

    def describe_classes(self) -> str:
        """Return how many images have each label, to follow the number of images, and how many labels are unknown."""
        matrix, names = self.label_matrix, self.class_names or range(self.dataset.num_classes or 0)
        positives, unknown = self.class_numbers(), int((matrix < 0).sum())
        text = ": " + ", ".join(f"{name} {number:,}" for name, number in zip(names, positives.tolist()))
        if len(positives) > _MOST_CLASSES_SHOWN:
            text = f" with {len(positives):,} classes, in {positives.min():,} to {positives.max():,} images each"
        return text + (f"; {unknown / matrix.size:.1%} of the labels are not known" if unknown else "")

    def identify(self) -> dict[str, Any]:
        """Return what identifies the data in addition to their number: labels and classes."""
        labels = hashlib.sha256(np.ascontiguousarray(self.label_matrix).data).hexdigest()[:16]
        facts = {"number of classes": self.dataset.num_classes, "labels": labels}
        return facts if self.class_names is None else {**facts, "classes": list(map(str, self.class_names))}


def find_missing_labels(samples: MultiLabelSamples, split: str) -> list[str]:
    """Return lines if there are classes that no image of the ``split`` is known to have, or known not to have."""
    matrix = samples.label_matrix
    is_never, is_always = (~(matrix == value).any(axis=0) for value in (1, 0))
    is_always &= ~is_never  # and not without any known label
    lines = [f"no image of {split} is known to have {_name_labels(samples, is_never)}"] if is_never.any() else []
    if is_always.any():
        lines.append(
            f"no image of {split} is known not to have {_name_labels(samples, is_always)}: in a table, 0 says so, and "
            "-1 and nothing mean not known (with DATA.TABLE.EMPTY absent, nothing is 0)"
        )
    return lines


def _name_labels(samples: MultiLabelSamples, is_named: np.ndarray) -> str:
    """Return the number and the first names of labels, bool (classes,)."""
    named, names = np.flatnonzero(is_named), samples.class_names
    shown = ", ".join(str(names[label]) if names else str(label) for label in named[:3].tolist())
    return f"{len(named):,} of {len(is_named):,} labels: {shown}{', …' if len(named) > 3 else ''}"


def balance_positives(labels: np.ndarray) -> np.ndarray:
    """Compute the images without a label for each with it, float64 (classes,), 1 where one of both is missing.

    ``labels`` are int8 (samples, classes), -1 where it is not known.
    """
    positives, negatives = ((labels == value).sum(axis=0) for value in (1, 0))
    both = (positives > 0) & (negatives > 0)
    return np.where(both, negatives / np.maximum(positives, 1), 1.0)
