"""Open what a recipe reads for other loops than ours."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..tasks.dataset import TransformedDataset
from ..tasks.task import Task, make_task
from .runs import PathLike, load_config


def open_dataset(config: PathLike, split: str = "train", **keys: Any) -> "OpenedSamples":
    """Open the samples that a recipe reads, with its transform, for any loop.

    ``samples[index]`` is a transformed sample, and ``samples.dataset[index]`` is what is stored. With our
    ``TrainingSampler``, a ``paddle.io.DataLoader(samples, batch_sampler=..., collate_fn=samples.collate)`` has the
    batches of a training.

    Args:
        config: YAML file, or the name of a recipe.
        split: "train" has a training's augmentation; any other split is read as an evaluation reads it.
        **keys: as those of ``train``, such as ``data_path``.

    Raises:
        UserError: the data are missing or damaged, or a setting is wrong.
    """
    values = load_config(config, **keys)
    task = make_task(values)
    cache = values.DATA.CACHE_FOLDER
    folder = Path(tempfile.mkdtemp(prefix="paddlevit_dist_") if cache is None else cache).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    samples = task.build_dataset(split, folder)
    opened = OpenedSamples(task, samples, values.SEED)
    if cache is None:
        weakref.finalize(opened, _remove, str(folder), os.getpid())
    return opened


class OpenedSamples(TransformedDataset, paddle.io.Dataset):
    """Give the samples of one split, and collate them as their task does.

    Args:
        task: makes batches of the samples.
        samples: as ``task.build_dataset`` returns them.
        seed: of what is random about a sample.
    """

    def __init__(self, task: Task, samples: TransformedDataset, seed: int) -> None:
        self.task, self.samples, self.seed = task, samples, seed
        self.dataset: Any = samples.dataset
        self.class_names = samples.class_names

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read and transform a sample; the generator decides what is random about it."""
        return self.samples.sample(index, generator)

    def describe(self, index: int) -> str:
        """Say where a sample comes from."""
        return self.samples.describe(index)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """Draw the indices of an epoch, int (samples,); None: a plain permutation."""
        return self.samples.draw_order(generator)

    def collate(self, batch: Any) -> Any:
        """Join samples into the batch that the task's model takes: arrays by name, and what stays on the host."""
        return self.task.collate(batch)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # loader processes have a copy of what reads it
        shutil.rmtree(folder, ignore_errors=True)
