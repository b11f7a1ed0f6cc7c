"""Datasets of recipes for other training loops."""

import contextlib
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..launch.stale_resources import temporary_folder
from ..tasks.dataset import TransformedDataset
from ..tasks.listed_samples import open_samples
from ..tasks.seeding import OwnRandomness
from ..tasks.task import Task
from ..tasks.task_factory import make_task
from .runs import PathLike, load_config


def open_dataset(config: PathLike, split: str = "train", **keys: Any) -> "OpenedSamples":
    """Open the dataset of a recipe, with its transform, for any training loop.

    ``samples[index]`` is a transformed sample, and ``samples.dataset[index]`` is the stored one. With
    ``TrainingSampler``, a ``paddle.io.DataLoader(samples, batch_sampler=..., collate_fn=samples.collate)`` gives the
    batches of a training run.

    Args:
        config: YAML file, or the name of a recipe.
        split: "train" is read with training augmentation, any other split with the evaluation transform.
        **keys: flags and keys, see ``train``, such as ``data_path``.

    Raises:
        UserError: the data are missing or damaged, or a setting is wrong.
    """
    values = load_config(config, **keys).clone()
    cache = values.DATA.CACHE_FOLDER
    held = contextlib.ExitStack()
    folder = (held.enter_context(temporary_folder("data")) if cache is None else Path(cache)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    values.defrost()
    values.SAVE = str(folder)  # what a run lists in its output folder, such as held-out files
    values.freeze()
    try:
        task = make_task(values)
        samples = open_samples(task, split, folder)
    except BaseException:
        held.close()
        raise
    opened = OpenedSamples(task, samples, values.SEED)
    # It reads from the folder: ``open_dataset(...).dataset[0]`` keeps only the dataset.
    weakref.finalize(samples.dataset if hasattr(samples.dataset, "__weakref__") else opened, held.close)
    return opened


class OpenedSamples(TransformedDataset, paddle.io.Dataset):
    """Read the ``samples`` of one split, collated as by ``task``; ``seed`` is the seed of the random augmentation."""

    def __init__(self, task: Task, samples: TransformedDataset, seed: int) -> None:
        self.task, self.samples, self.seed = task, samples, seed
        self.dataset: Any = samples.dataset
        self.class_names = samples.class_names
        self.own_randomness = OwnRandomness(samples)

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read and transform a sample; the generator draws its augmentation."""
        return self.samples.sample(index, generator)

    def describe(self, index: int) -> str:
        """Return the source of a sample, for messages."""
        return self.samples.describe(index)

    def set_epoch(self, epoch: int) -> None:
        """Let the samples take note of the epoch."""
        self.samples.set_epoch(epoch)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        """Draw the indices of an epoch, int (samples,); None: a plain permutation."""
        return self.samples.draw_order(generator)

    def collate(self, batch: Any) -> Any:
        """Collate samples to a batch for the task's model: arrays by name, and values that stay on the host."""
        return self.task.collate(batch)
