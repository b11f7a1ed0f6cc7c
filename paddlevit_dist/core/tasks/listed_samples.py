"""Samples of a user's object with a length and samples by index, such as a list or a ``paddle.io.Dataset``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.printing import describe_value
from .dataset import Dataset, TransformedDataset
from .opened_dataset import OpenedDataset
from .seeding import seed_libraries

_DATASET_FACTS = ("root", "groups_by", "content_key")  # that ``TransformedDataset`` asks its ``Dataset`` for
_FACTS = ("class_names", "labeled", "notices", "sample_name", "exclusions", "eval_protocol")  # its own


class ListedSamples(TransformedDataset):
    """The samples of an object by index, as a task's batches are made of them."""

    def __init__(self, samples: Any) -> None:
        self.dataset = samples
        for name in _FACTS:
            if hasattr(samples, name):
                setattr(self, name, getattr(samples, name))

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read sample ``index``."""
        return self.dataset[index]

    def describe(self, index: int) -> str:
        """Return the description of sample ``index`` if there is one, else its number."""
        return self._dataset().describe(index)

    def identities(self) -> np.ndarray | None:
        """Return digests that identify samples; None: unknown, as other samples may have these descriptions."""
        is_known = self._dataset().root is not None or hasattr(self.dataset, "identity")
        return super().identities() if is_known else None

    def _dataset(self) -> Dataset:
        if isinstance(self.dataset, Dataset):
            return self.dataset
        dataset: Any = object.__new__(Dataset)
        dataset.user_object = self.dataset
        for name in _DATASET_FACTS:
            if hasattr(self.dataset, name):
                setattr(dataset, name, getattr(self.dataset, name))
        return OpenedDataset(dataset)  # type: ignore[return-value]


def open_samples(task: Any, split: str, cache_folder: Any) -> Any:
    """Open the samples of a split by ``build_dataset`` of a task, as a ``TransformedDataset`` for all that reads them.

    Raises UserError as it does, or if a user's task returns no samples.
    """
    seed_libraries(task.config.SEED)  # a class that shuffles and then takes a part has one order in all splits
    samples = task.build_dataset(split, cache_folder)
    if isinstance(samples, TransformedDataset):
        dataset = vars(samples).get("dataset")
        if _is_bare(dataset):
            samples.dataset = OpenedDataset(dataset, split)
        return samples if is_builtin(type(samples)) else OpenedDataset(samples, split)
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
    return ListedSamples(OpenedDataset(samples, split) if _is_bare(samples) else samples)


def _is_bare(dataset: Any) -> bool:
    """Return whether it is a dataset of a user that the task has created itself, without the adapter."""
    return isinstance(dataset, Dataset) and not is_builtin(type(dataset))
