"""Short digit trainings for tests, run as workers or in the test's own process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from support.trainings.runs import read_events

TINY = ["MODEL.EMBED_DIM", "32", "MODEL.DEPTH", "2", "MODEL.NUM_HEADS", "2", "MODEL.PATCH_SIZE", "4"]
DIGITS = [
    "DATA.IMAGE_SIZE",
    "16",
    "DATA.IMAGE_CHANNELS",
    "1",
    "DATA.NUM_WORKERS",
    "0",
    "REPORT_FREQ",
    "1",
    "REPORT",
    "False",
]


class Part(TransformedDataset):
    """The first ``size`` samples of a dataset, read again from the start if it has fewer."""

    def __init__(self, samples: Any, size: int) -> None:
        self.samples, self.size = samples, size

    def __len__(self) -> int:
        return self.size

    def sample(self, index: int, generator: Any) -> Any:
        return self.samples.sample(index % len(self.samples), generator)

    def describe(self, index: int) -> str:
        return self.samples.describe(index % len(self.samples))


def make_trainer(
    output: str | Path,
    words: Sequence[str],
    sizes: Mapping[str, int] = MappingProxyType({}),
    task_class: Any = None,
    callbacks: Sequence[Any] = (),
) -> Trainer:
    """A trainer that a command line configures, in this process.

    Args:
        sizes: of the splits that are not taken as they are, see ``Part``.
        task_class: in place of the registered one.
    """
    values = settings.load([f"-output={output}", *words]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    task = (task_class or resolve("task", values.TASK))(values)
    splits = [values.DATA.SPLIT] if values.EVAL else ["train", "val"]
    datasets = {split: task.build_dataset(split, Path(output)) for split in splits}
    datasets |= {split: Part(samples, sizes[split]) for split, samples in datasets.items() if split in sizes}
    return Trainer(values, task, datasets, callbacks=callbacks)


def build(
    output: str,
    *arguments: str,
    train_size: int = 320,
    val_size: int = 64,
    task_class: Any = None,
    callbacks: Sequence[Any] = (),
) -> Trainer:
    """A trainer of a tiny ViT on parts of the digits."""
    sizes = {"train": train_size, "val": val_size}
    return make_trainer(output, [*DIGITS, *TINY, *arguments], sizes, task_class, callbacks)


def train(output: str, arguments: list[str], train_size: int = 320) -> dict[str, Any]:
    """Train and return weights, the loss of every update and the last evaluation."""
    trainer = build(output, *arguments, train_size=train_size)
    initial = make_weights(trainer)
    values = trainer.train()
    return {"initial": initial, "weights": make_weights(trainer), "losses": losses(output), "evaluation": values}


def make_weights(trainer: Trainer) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in trainer.model.state_dict().items()}


def losses(output: str) -> list[float]:
    lines = read_events(output)
    return [line["loss"] for line in lines if line["kind"] == "training"]


def evaluate(output: str, val_size: int, batch_size: int) -> dict[str, float]:
    """Evaluate fresh weights (the same in every process) on ``val_size`` samples."""
    trainer = build(output, "-epochs=1", f"-batch_size={batch_size}", val_size=val_size)
    return trainer.evaluator("evaluation")[0]
