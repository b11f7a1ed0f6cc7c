"""The evaluation of a run: one split, each sample once over all ranks."""

from typing import Any

import paddle

from ..contracts.task import Task
from ..loading.loader import loader_of
from ..loading.sampler import EvaluationSampler
from ..observe.heartbeat import Heartbeat
from ..observe.progress import Progress
from ..parallel import is_main, rank, world_size
from . import gpu_memory
from .precision import EvaluationPrecision
from .steps import evaluate
from .watchers import Watchers


class Evaluation:
    """Evaluates a model on these samples, as often as it is called.

    Args:
        model: the inner model, with the weights that it has then.

    Attributes:
        loader: of this rank's share.
        facts: what stands beside its values.
    """

    def __init__(
        self,
        config: Any,
        task: Task,
        model: paddle.nn.Layer,
        samples: Any,
        precision: EvaluationPrecision,
        at: Heartbeat,
    ) -> None:
        self.config = config
        self.task = task
        self.model = model
        self.samples = samples
        self.precision = precision
        self.heartbeat = at
        self.facts = dict(precision.facts)
        if samples.without:
            self.facts["without"] = samples.without
        size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size())
        self.loader = loader_of(config, samples, sampler, task.collate, check=task.check_sample)

    def __call__(
        self,
        label: str,
        writer: Any = None,
        epoch: int | None = None,
        watchers: Watchers | None = None,
    ) -> tuple[dict[str, float], str]:
        """Evaluate; returns the values, equal on every rank, and their line. Every rank must call this.

        Args:
            label: of the progress bar, and what the watchdog is told.
            writer, epoch, watchers: see ``steps.evaluate``.
        """
        total = len(self.loader)
        bar = Progress(total, label, is_main())
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            bar.step()
            self.heartbeat.at(f"in the {label}, {done} of {total} batches done")

        self.heartbeat.at(f"in the {label}")
        try:
            memory = gpu_memory.explained(gpu_memory.of_evaluation(self.config))
            with memory, self.precision.forward_of(self.model):
                values, line = evaluate(
                    self.task, self.model, self.loader, count, writer=writer, epoch=epoch, watchers=watchers
                )
            return values, " ".join([line, *(f"({fact})" for fact in self.facts.values())])
        finally:
            bar.close()
