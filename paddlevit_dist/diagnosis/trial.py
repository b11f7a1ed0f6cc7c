"""What ``doctor`` tries of a training before it is started: a few updates on one batch, a step on each device."""

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import paddle

from ..contracts.task import Step, Task, Term
from ..engine import gpu_memory
from ..engine.steps import accumulation_groups
from ..loading.loader import Loader
from ..observe.meters import memory_mib
from ..parallel import all_gather, is_main
from .selftest import silent_training

_LEAST_UPDATES = 5
_SLOW_SECONDS = 60.0


class OneBatchTraining:
    """A training of one process that sees the same batch again and again.

    Args:
        config: of the trial: its batch, no accumulation, nothing random in its steps, SAVE a folder that is thrown
            away.
        samples: of the training.
    """

    def __init__(self, config: Any, task: Task, samples: Any, folder: Path) -> None:
        self._config = config
        self._training = silent_training(config, task, samples, folder)
        self._training.model.train()
        self._group = first_batches(self._training.loader, 1)
        self.size = config.DATA.BATCH_SIZE
        self.parameters = sum(math.prod(p.shape) for p in self._training.model.parameters())
        self.trained = sum(math.prod(p.shape) for p in self._training.model.parameters() if not p.stop_gradient)

    def update(self) -> dict[str, float]:
        """Make an update with TRAIN.BASE_LR; returns the means of its terms before it, and "total", their weighted
        sum."""
        training = self._training
        step = Step(1, training.schedule.update, training.schedule.total_updates)
        group = [dict(batch) for batch in self._group]  # a step takes some entries out
        with gpu_memory.explained(gpu_memory.of_training(self._config)):
            (terms,) = training.updater(group, step, self._config.TRAIN.BASE_LR)
        training.sampler.count_update()
        training.schedule.count_update()
        means = {name: _mean(term) for name, term in terms.items()}
        return {**means, "total": sum(terms[name].weight * mean for name, mean in means.items() if terms[name].weight)}

    def overfit(self, first: float, updates: int, seconds: float) -> list[float]:
        """The loss of so many further updates; fewer if it is half of ``first`` or no number before, or time is up."""
        losses: list[float] = []
        started = time.perf_counter()
        while len(losses) < updates:
            losses.append(self.update()["total"])
            is_late = time.perf_counter() - started > seconds and len(losses) >= _LEAST_UPDATES
            if is_late or not math.isfinite(losses[-1]) or losses[-1] < first / 2:
                break
        return losses


def _mean(term: Term) -> float:
    count = term.count.numpy().item() if isinstance(term.count, paddle.Tensor) else term.count
    return float(term.sum.numpy().item()) / max(count, 1)


def first_batches(loader: Loader, number: int) -> list[dict[str, Any]]:
    """The first batches of a loader, without those after them."""
    with contextlib.closing(loader.epochs(1, 1)) as batches:
        return next(accumulation_groups(batches, number, 1))


def device_step(config: Any, task: Task, samples: Any, folder: str) -> None:
    """Make an update, or two where the first was quick, with the configuration's own batch; ``read_step`` tells what it
    took. Every rank must call this."""
    training = silent_training(config, task, samples, Path(folder))
    training.model.train()
    group = first_batches(training.loader, config.TRAIN.ACCUM_ITER)
    size = sum(_bytes(value) for value in group[0].values())
    seconds: list[float] = []
    while len(seconds) < 2:
        started = time.perf_counter()
        step, rate = Step(1, len(seconds), 100), training.schedule.learning_rate
        with gpu_memory.explained(gpu_memory.of_training(config)):
            training.updater([dict(batch) for batch in group], step, rate)
        norm = training.updater.gradient_norm
        seconds.append(time.perf_counter() - started)
        if max(all_gather(seconds[-1])) > _SLOW_SECONDS:
            break
    found = all_gather({"seconds": seconds[-1], "memory_mib": memory_mib(), "batch_bytes": size})
    if is_main():
        facts = {"ranks": found, "gradient_norm": norm, "samples": training.sampler.global_batch_size}
        Path(folder, "step.json").write_text(json.dumps(facts), encoding="utf-8")


def read_step(folder: Path) -> dict[str, Any]:
    """What ``device_step`` has written: "ranks", a list of each one's seconds, memory and bytes of a batch; the norm of
    the gradients; and how many samples an update takes."""
    return json.loads((folder / "step.json").read_text(encoding="utf-8"))


def _bytes(value: Any) -> int:
    return math.prod(value.shape) * value.element_size() if isinstance(value, paddle.Tensor) else 0
