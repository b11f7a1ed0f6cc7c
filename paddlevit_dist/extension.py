"""The class of an extension: a folder of this package that the rest does without, and that can be deleted alone.

The ``__init__`` of the folder has an ``EXTENSION``, of a class derived from ``Extension``; its methods import what they
need when they are called.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import paddle

    from .commands.scored import ScoreReport
    from .engine.evaluation import Evaluator
    from .engine.fused_optimizers import Found, UpdateRule
    from .engine.multi_tensor import GradientList, MovingAverages
    from .engine.trainer import Trainer
    from .images.transforms.crops import TrainingTransform
    from .settings import Configuration
    from .settings.every_run import RunSettings
    from .settings.key import KeyTable
    from .tasks.callback import Callback
    from .tasks.sample_groups import SampleGroups
    from .tasks.task import StepPosition, Task

FOLDERS = ("cpu_kernels", "debug", "report", "export", "leakage", "compare")
Made = TypeVar("Made")


class CommandHelp(NamedTuple):
    """Hold the help of a command that takes the main flags.

    Attributes:
        meaning: what the command does.
        examples: command lines.
    """

    meaning: str
    examples: tuple[str, ...]


class Flag(NamedTuple):
    """Name a flag, and what it sets.

    Attributes:
        name: without hyphens.
        key: the key that it sets; None if it is about the command itself.
        argument: what its value is called; None for a switch.
    """

    name: str
    argument: str | None
    key: str | None
    group: str
    meaning: str = ""  # in a few words, where those of the key are too many


class Extension:
    """Join commands, keys and callbacks to a run; each attribute and each method may be left out."""

    # ---- command line and keys ---------------------------------------------------------------------------------

    #: modules without which the extension is left out, as if its folder were not there
    needs: Sequence[str] = ()
    #: commands, each with what it does
    commands: Mapping[str, str] = {}
    #: the help of those that take the main flags
    about: Mapping[str, CommandHelp] = {}
    flags: Sequence[Flag] = ()
    #: where this key is set, the main job is ``run_job``
    job_key = ""

    def run_command(self, name: str, words: list[str]) -> None:
        """Carry out the command, given the words that follow its name."""

    def settings(self) -> Sequence[KeyTable]:
        """Return the tables of keys that every run reads.

        They are in the folder's module ``settings``, if it has one, which needs no Paddle.
        """
        module = f"{type(self).__module__}.settings"
        return (importlib.import_module(module).TABLE,) if importlib.util.find_spec(module) else ()

    def run_job(self, given: Configuration) -> None:
        """Do something else instead of a training or an evaluation."""

    # ---- a run and its data ------------------------------------------------------------------------------------

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the callbacks of a run that trains, or only evaluates; on every rank."""
        return ()

    def explain_not_finite(
        self, run: Trainer, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]
    ) -> list[str]:
        """Look into the update that ends a training (see ``NonFiniteGuard``); on every rank."""
        return []

    def run_failed(self, config: RunSettings, folder: Path, began: float) -> None:
        """Act on a run that has ended by an error, which is in its record; in the parent process.

        Args:
            config: of the run.
            folder: its output.
            began: when it began, in seconds since 1970.
        """

    def data_inspected(self, config: RunSettings, task: Task, train: Any, folder: Path) -> None:
        """Add to ``folder``, in which ``inspect data`` has drawn samples of the training set."""

    def evaluation_prepared(self, config: RunSettings, datasets: dict[str, Any], folder: Path) -> None:
        """Act when the samples that are evaluated are known, and no worker is started."""

    def intervals_written(self, file: Path, evaluation: Evaluator, facts: dict[str, Any]) -> None:
        """Act on ``file``, which holds the intervals of an evaluation with a table of samples."""

    def results_scored(self, file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None) -> None:
        """Act when results of others were scored; a table of their samples may be written to ``file``."""

    # ---- what is evaluated in the place of the configured model ------------------------------------------------

    def parse_evaluated_argument(self, word: str) -> str | None:
        """Return what a word of ``evaluate WORD`` sets, as KEY=VALUE; None if it means nothing here."""
        return None

    #: where this key is set, what it names is evaluated, as the ``evaluated_model``
    evaluated_key = ""

    def evaluated_model(self, config: RunSettings, task: Task) -> paddle.nn.Layer:
        """Build the model that is evaluated in the place of the configured one."""
        raise NotImplementedError

    def load_evaluated(self, run: Trainer, model: paddle.nn.Layer) -> tuple[str | Path, list[str]] | None:
        """Load what that model needs.

        Returns:
            What is evaluated, and lines for the log; None: the named weights are to be loaded.
        """
        return None

    # ---- what computes faster; None where it does not ----------------------------------------------------------

    def prepare_model(self, model: Any) -> None:
        """Change how a model that was built computes; a second time changes nothing."""

    def gradients(self, parameters: Sequence[paddle.Tensor]) -> GradientList | None:
        """Return what takes the place of ``engine.multi_tensor.GradientList``, if anything."""
        return None

    def averages(self, flat: paddle.Tensor, sizes: Sequence[int]) -> MovingAverages | None:
        """Return what takes the place of ``engine.multi_tensor.MovingAverages``, if anything."""
        return None

    def optimizer_step(self, rule: UpdateRule, parameters: Sequence[paddle.Tensor]) -> Found | None:
        """Return a step of all parameters in place of ``engine.fused_optimizers``'s own, if there is one."""
        return None

    def resized_cross_entropy(
        self, logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None
    ) -> paddle.Tensor | None:
        """Compute ``losses.resized_cross_entropy`` in another way; None leaves it as it is."""
        return None

    def training_transform(self) -> type[TrainingTransform] | None:
        """Return the class that takes the place of ``TrainingTransform``, if any."""
        return None


def find_evaluated(config: RunSettings) -> Extension | None:
    """Find the extension whose model is evaluated, if there is one; see ``Extension.evaluated_key``."""
    return next((one for one in extensions() if one.evaluated_key and config[one.evaluated_key]), None)


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions whose folders are there, and what they need."""
    beside = [os.path.dirname(__file__)]  # and nowhere else, as where another copy is installed
    specs = [PathFinder.find_spec(f"{__package__}.{folder}", beside) for folder in FOLDERS]
    there = [spec.name for spec in specs if spec is not None and spec.origin is not None]
    found = [importlib.import_module(name).EXTENSION for name in there]
    return tuple(one for one in found if all(importlib.util.find_spec(module) for module in one.needs))


def make(better: Callable[[Extension], Made | None], plain: Callable[[], Made]) -> Made:
    """Return what the first extension that has something better makes, else what ``plain`` does."""
    for extension in extensions():
        found = better(extension)
        if found is not None:
            return found
    return plain()
