"""The first lines of a run: which data, which model, which devices, how large an update."""

from __future__ import annotations

import math
from typing import Any, Dict, List

import paddle

from ..parallel import world_size
from .schedule import describe_rates
from .task import Task


def describe_data(config: Any, task: Task, datasets: Dict[str, Any]) -> List[str]:
    """Name and place of the data set, and how many samples each split has, by class where that is known."""
    data = config.DATA
    place = data.DATA_PATH or "no -data_path: it comes with the package"
    splits = [f"{split} {task.describe_samples(samples)}" for split, samples in datasets.items()]
    return [f"data: {data.DATASET} ({place})", *(f"  {split}" for split in splits)]


def describe_model(config: Any, model: paddle.nn.Layer) -> str:
    """Name and size."""
    parameters = sum(math.prod(p.shape) for p in model.parameters())
    return f"model: {config.MODEL.NAME}, {parameters:,} parameters"


def describe_devices(config: Any) -> str:
    """Devices, the samples that they take at once, and the learning rates that follow."""
    size = world_size()
    kind = "GPU" if paddle.get_device().startswith("gpu") else "CPU process"
    devices = f"devices: {size} {kind}{'' if size == 1 else 's' if kind == 'GPU' else 'es'}"
    if config.EVAL:
        return f"{devices}; batch {config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE} per process"
    return f"{devices}; {describe_rates(config, size)}"


def describe_epoch(task: Task, samples: int, updates: int, effective_batch: int) -> str:
    """Updates of an epoch, and what it leaves out."""
    left_out = samples - updates * effective_batch
    said = f"training: {updates} updates per epoch"
    if left_out:
        said += (
            f"; {left_out:,} of {samples:,} {task.sample_name} are left out of each, others each time: they do not "
            f"fill an effective batch of {effective_batch}"
        )
    return said
