"""Samples of a user's object with a length and samples by index, such as a list or a ``paddle.io.Dataset``."""

import functools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import describe_value
from .dataset import Dataset, TransformedDataset
from .listed_dataset import ListedItems

_LARGEST_SEED = 1 << 32
_DATASET_FACTS = ("root", "groups_by", "content_key")  # that ``TransformedDataset`` asks its ``Dataset`` for
_FACTS = ("class_names", "labeled", "notices", "sample_name", "exclusions", "eval_protocol")  # its own


class _ListedFacts(ListedItems, Dataset):
    """What a user's object says of its samples, by the names that a ``Dataset`` has."""

    def __init__(self, items: Any) -> None:
        self.items = items
        for name in _DATASET_FACTS:
            if hasattr(items, name):
                setattr(self, name, getattr(items, name))


class ListedSamples(TransformedDataset):
    """The samples of an object by index, as a task's batches are made of them.

    The random numbers of NumPy and of Python that ``samples[index]`` draws follow from the run's seed, the epoch and
    the index, in any loader process.
    """

    def __init__(self, samples: Any) -> None:
        self.dataset = samples
        for name in _FACTS:
            if hasattr(samples, name):
                setattr(self, name, getattr(samples, name))

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read sample ``index``."""
        seed = int(generator.integers(_LARGEST_SEED))
        np.random.seed(seed)
        random.seed(seed)
        return self.dataset[index]

    def describe(self, index: int) -> str:
        """Return the description of sample ``index`` if there is one, else its number."""
        return self._dataset().describe(index)

    def identities(self) -> np.ndarray | None:
        """Return digests that identify samples; None: unknown, as other samples may have these descriptions."""
        is_known = self._dataset().root is not None or hasattr(self.dataset, "identity")
        return super().identities() if is_known else None

    def _dataset(self) -> Dataset:
        return self.dataset if isinstance(self.dataset, Dataset) else _ListedFacts(self.dataset)


def make_samples(cls: type[Any]) -> None:
    """Let ``build_dataset`` of a task return ``TransformedDataset``, also if a derived class returns another object."""
    method = cls.build_dataset
    is_made = getattr(method, "makes_samples", None) is method
    if is_made or not callable(method) or getattr(method, "__isabstractmethod__", False):
        return

    @functools.wraps(method)
    def build_dataset(self: Any, split: str, *more: Any, **options: Any) -> Any:
        samples = method(self, split, *more, **options)
        is_outermost = getattr(type(self), "build_dataset", None) is build_dataset
        return samples if isinstance(samples, TransformedDataset) or not is_outermost else _wrap(self, split, samples)

    setattr(build_dataset, "makes_samples", build_dataset)  # noqa: B010 (an attribute of a function, for mypy)
    cls.build_dataset = build_dataset


def _wrap(task: Any, split: str, samples: Any) -> ListedSamples:
    try:
        number = -1 if isinstance(samples, (Mapping, str, bytes)) else len(samples)
    except Exception:  # such as an io.IterableDataset's
        number = -1
    if number < 0 or not hasattr(samples, "__getitem__"):
        raise UserError(
            f"{type(task).__name__}.build_dataset returns {describe_value(samples)} for {split}, expected samples with "
            "a length and an index, such as a list or a paddle.io.Dataset"
        )
    if not number:
        raise UserError(f"{type(task).__name__}.build_dataset returns no samples for {split}")
    return ListedSamples(samples)
