"""What a recipe reads, for other loops than ours."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..tasks.dataset import Samples
from ..tasks.task import Task, make_task
from .runs import PathLike, load_config


def open_dataset(config: PathLike, split: str = "train", **keys: Any) -> "OpenedSamples":
    """The samples that a recipe reads, with its transform, for anybody's loop: ``samples[index]``, ``len(samples)``;
    ``samples.dataset[index]`` is what is stored.

    With our ``TrainingSampler`` a ``paddle.io.DataLoader(samples, batch_sampler=..., collate_fn=samples.collate)`` has
    the batches of a training.

    Args:
        config: YAML file, or the name of a recipe.
        split: of "train" with a training's augmentation, any other as evaluated.
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


class OpenedSamples(Samples, paddle.io.Dataset):
    """The samples of one split, and what their task makes a batch of.

    Args:
        samples: as ``task.build_dataset`` returns them.
        seed: of what is random about a sample.
    """

    def __init__(self, task: Task, samples: Samples, seed: int) -> None:
        self.task, self.samples, self.seed = task, samples, seed
        self.dataset: Any = samples.dataset
        self.class_names = samples.class_names

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        return self.samples.sample(index, generator)

    def describe(self, index: int) -> str:
        return self.samples.describe(index)

    def draw_order(self, generator: np.random.Generator) -> np.ndarray | None:
        return self.samples.draw_order(generator)

    def collate(self, batch: Any) -> Any:
        """Samples of a batch as the task's model takes them: arrays by name, and what stays on the host."""
        return self.task.collate(batch)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # loader processes have a copy of what reads it
        shutil.rmtree(folder, ignore_errors=True)
