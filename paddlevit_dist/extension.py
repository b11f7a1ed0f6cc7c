"""The class of an extension: a folder of this package that is optional and can be deleted alone.

The ``__init__`` of the folder has an ``EXTENSION``, of a class derived from ``Extension``; its methods import other
modules when they are called.
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
    from .engine.fused_optimizers import MakerOrProblem, UpdateRule
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
Result = TypeVar("Result")


class CommandHelp(NamedTuple):
    """The help of a command that takes the main flags.

    Attributes:
        meaning: what the command does.
        examples: command lines.
    """

    meaning: str
    examples: tuple[str, ...]


class Flag(NamedTuple):
    """A flag of the command line.

    Attributes:
        name: name without hyphens.
        key: the key that it sets; None for a flag of the command itself.
        argument: placeholder of its value; None for a switch.
    """

    name: str
    argument: str | None
    key: str | None
    group: str
    meaning: str = ""  # in a few words; empty: the key's


class Extension:
    """Adds commands, keys and callbacks to a run; each attribute and each method is optional."""

    # ---- command line and keys ---------------------------------------------------------------------------------

    #: modules without which the extension is disabled, as if its folder did not exist
    needs: Sequence[str] = ()
    #: commands, each with what it does
    commands: Mapping[str, str] = {}
    #: the help of the commands that take the main flags
    about: Mapping[str, CommandHelp] = {}
    flags: Sequence[Flag] = ()
    #: if this key is set, the main job is ``run_job``
    job_key = ""

    def run_command(self, name: str, words: list[str]) -> None:
        """Run the command with the words that follow its name."""

    def settings(self) -> Sequence[KeyTable]:
        """Return the tables of keys that every run reads.

        They are in the folder's module ``settings``, if it has one, which needs no Paddle.
        """
        module = f"{type(self).__module__}.settings"
        return (importlib.import_module(module).TABLE,) if importlib.util.find_spec(module) else ()

    def run_job(self, given: Configuration) -> None:
        """Run another job instead of training or evaluation."""

    # ---- a run and its data ------------------------------------------------------------------------------------

    def callbacks(self, run: Trainer, trains: bool) -> Sequence[Callback]:
        """Return the callbacks of a run that trains, or only evaluates; on every rank."""
        return ()

    def explain_not_finite(
        self, run: Trainer, batches: Sequence[dict[str, Any]], step: StepPosition, counts: dict[str, Any]
    ) -> list[str]:
        """Examine the update that ends a training run (see ``NonFiniteGuard``); on every rank."""
        return []

    def run_failed(self, config: RunSettings, folder: Path, began: float) -> None:
        """React to a run that has ended by an error, which is in its record; in the parent process.

        Args:
            config: configuration of the run.
            folder: its output folder.
            began: start of the run, in seconds since 1970.
        """

    def data_inspected(self, config: RunSettings, task: Task, train: Any, folder: Path) -> None:
        """Add files to ``folder``, where ``inspect data`` has drawn samples of the training set."""

    def evaluation_prepared(self, config: RunSettings, datasets: dict[str, Any], folder: Path) -> None:
        """React once the evaluation samples are known, before any worker starts."""

    def intervals_written(self, file: Path, evaluation: Evaluator, facts: dict[str, Any]) -> None:
        """React to ``file``, with the intervals of an evaluation that has a table of samples."""

    def results_scored(self, file: Path, scored: ScoreReport, results: str, groups: SampleGroups | None) -> None:
        """React to scored results of other programs; a table of their samples may be written to ``file``."""

    # ---- evaluation of another model than the configured one ----------------------------------------------------

    def parse_evaluated_argument(self, word: str) -> str | None:
        """Translate a positional argument of ``evaluate`` to KEY=VALUE; return None if it is not recognized."""
        return None

    #: if this key is set, ``evaluated_model`` is evaluated
    evaluated_key = ""

    def evaluated_model(self, config: RunSettings, task: Task) -> paddle.nn.Layer:
        """Build the model that is evaluated instead of the configured one."""
        raise NotImplementedError

    def load_evaluated(self, run: Trainer, model: paddle.nn.Layer) -> tuple[str | Path, list[str]] | None:
        """Load the weights or the graph of that model.

        Returns:
            The name of the evaluated file, and lines for the log; None: the configured weights are loaded.
        """
        return None

    # ---- faster implementations; None where there is none --------------------------------------------------------

    def prepare_model(self, model: Any) -> None:
        """Replace layers of a new model with faster ones; a second call changes nothing."""

    def gradients(self, parameters: Sequence[paddle.Tensor]) -> GradientList | None:
        """Return a replacement for ``engine.multi_tensor.GradientList``, if any."""
        return None

    def averages(self, flat: paddle.Tensor, sizes: Sequence[int]) -> MovingAverages | None:
        """Return a replacement for ``engine.multi_tensor.MovingAverages``, if any."""
        return None

    def optimizer_step(self, rule: UpdateRule, parameters: Sequence[paddle.Tensor]) -> MakerOrProblem | None:
        """Return a step of all parameters in place of ``engine.fused_optimizers``'s own, if there is one."""
        return None

    def resized_cross_entropy(
        self, logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None
    ) -> paddle.Tensor | None:
        """Compute ``losses.resized_cross_entropy`` in another way; return None to keep the default."""
        return None

    def training_transform(self) -> type[TrainingTransform] | None:
        """Return a replacement for ``TrainingTransform``, if any."""
        return None


def find_evaluated(config: RunSettings) -> Extension | None:
    """Return the extension whose model is evaluated, if any; see ``Extension.evaluated_key``."""
    return next((each for each in extensions() if each.evaluated_key and config[each.evaluated_key]), None)


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Return the extensions whose folders and required modules exist."""
    folder_path = [os.path.dirname(__file__)]  # not in another installed copy
    specs = [PathFinder.find_spec(f"{__package__}.{folder}", folder_path) for folder in FOLDERS]
    names = [spec.name for spec in specs if spec is not None and spec.origin is not None]
    candidates = [importlib.import_module(name).EXTENSION for name in names]
    return tuple(each for each in candidates if all(importlib.util.find_spec(module) for module in each.needs))


def make(better: Callable[[Extension], Result | None], plain: Callable[[], Result]) -> Result:
    """Return the result of the first extension with a better one, else of ``plain``."""
    for extension in extensions():
        result = better(extension)
        if result is not None:
            return result
    return plain()
