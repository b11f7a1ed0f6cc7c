"""The optional folders of this package: each can be deleted alone, and the rest of the package works without it.

The core never imports them. Their commands are rows of ``commands.COMMANDS``, their keys and flags are in their module
``settings``, their hooks, observers and jobs are rows of the tables below, and the functions that the core calls are in
``_MODULES``. A row is imported when a run needs it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.lazy_names import import_object, lazy_names

if TYPE_CHECKING:  # the functions of ``_MODULES``, each with its signature
    from ..compare.tables import write_evaluated as write_evaluated
    from ..compare.tables import write_scored as write_scored
    from ..cpu_kernels.accelerate import accelerate as accelerate
    from ..cpu_kernels.layers import resized_cross_entropy as resized_cross_entropy
    from ..cpu_kernels.transforms import CompiledTrainingTransform as CompiledTrainingTransform
    from ..cpu_kernels.updates import averages as averages
    from ..cpu_kernels.updates import gradients as gradients
    from ..cpu_kernels.updates import optimizer_step as optimizer_step
    from ..debug.first_layer import FirstLayerFinder as FirstLayerFinder
    from ..engine.evaluation import EvaluationObserver
    from ..engine.hooks import Hook
    from ..engine.trainer import Trainer
    from ..export.files import parse_evaluated_argument as parse_evaluated_argument
    from ..export.scoring import load_comparison_weights as load_comparison_weights
    from ..export.scoring import load_exported_layer as load_exported_layer
    from ..leakage.evaluation import find_in_training as find_in_training
    from ..leakage.formatting import show_leaks as show_leaks
    from ..report.hook import write_evaluation_report as write_evaluation_report
    from ..report.page import write_last_page as write_last_page
    from ..settings.every_run import RunSettings

FOLDERS = ("cpu_kernels", "debug", "report", "export", "leakage", "compare")
_REQUIRED_MODULES = {"cpu_kernels": "numba"}

# Function or class that the core uses after ``has(folder)`` -> its module.
_MODULES = {
    "CompiledTrainingTransform": "cpu_kernels.transforms",
    "FirstLayerFinder": "debug.first_layer",
    "accelerate": "cpu_kernels.accelerate",
    "averages": "cpu_kernels.updates",
    "find_in_training": "leakage.evaluation",
    "gradients": "cpu_kernels.updates",
    "load_comparison_weights": "export.scoring",
    "load_exported_layer": "export.scoring",
    "optimizer_step": "cpu_kernels.updates",
    "parse_evaluated_argument": "export.files",
    "resized_cross_entropy": "cpu_kernels.layers",
    "show_leaks": "leakage.formatting",
    "write_evaluated": "compare.tables",
    "write_evaluation_report": "report.hook",
    "write_last_page": "report.page",
    "write_scored": "compare.tables",
}
_ROOT = "paddlevit_dist"
__getattr__, __dir__ = lazy_names(_ROOT, _MODULES)


class HookRow(NamedTuple):
    """A hook of the training, or an observer of an evaluation, of a folder.

    Attributes:
        key: the key that is set if a run needs it.
        location: ".folder.module:Class", called with the trainer on every rank.
    """

    key: str
    location: str


TRAINING_HOOKS = (
    HookRow("PROFILE", ".debug.profile:ProfileHook"),
    HookRow("REPORT", ".report.hook:ReportHook"),
)
EVALUATION_OBSERVERS = (  # of a run that only evaluates
    HookRow("EXPORTED", ".export.scoring:ExportComparison"),
    HookRow("EXCLUDE_LEAKED", ".leakage.evaluation:WithoutLeaks"),
    HookRow("PER_SAMPLE", ".compare.per_sample:PerSampleWriter"),
)
# Key -> the job that runs instead of training or evaluation if the key is set.
JOBS = {"SELFTEST": ".debug.selftest:run", "SEEDS": ".compare.seeds:run"}


@functools.cache
def has(folder: str) -> bool:
    """Return whether a folder of ``FOLDERS`` exists, and the module that it requires."""
    package_path = [os.path.dirname(os.path.dirname(__file__))]  # not in another installed copy
    spec = PathFinder.find_spec(f"{_ROOT}.{folder}", package_path) if folder in FOLDERS else None
    required = _REQUIRED_MODULES.get(folder)
    is_installed = required is None or importlib.util.find_spec(required) is not None
    return spec is not None and spec.origin is not None and is_installed


def is_missing(location: str) -> bool:
    """Return whether ".folder.module:name" is in a folder that does not exist."""
    folder = location.split(".")[1]
    return folder in FOLDERS and not has(folder)


def find_tables() -> list[Any]:
    """Return the tables of keys of the folders that exist, which every run reads; they need no Paddle."""
    locations = [f".{folder}.settings" for folder in FOLDERS if has(folder)]
    names = [f"{_ROOT}{location}" for location in locations]
    return [import_object(f"{name}:TABLE") for name in names if importlib.util.find_spec(name)]


def find_job(values: RunSettings) -> str | None:
    """Return the key of the job that a configuration asks for; None for training or evaluation."""
    return next((key for key, location in JOBS.items() if not is_missing(location) and values[key]), None)


def import_job(key: str) -> Callable[[Any], None]:
    """Import the job of a key; it takes the ``settings.Configuration``."""
    return import_object(JOBS[key])


def build_hooks(run: Trainer) -> list[Hook]:
    """Build the hooks of training whose keys are set."""
    return [import_object(row.location)(run) for row in TRAINING_HOOKS if _is_set(row, run.config)]


def build_observers(run: Trainer) -> list[EvaluationObserver]:
    """Build the observers of a run that only evaluates, whose keys are set."""
    return [import_object(row.location)(run) for row in EVALUATION_OBSERVERS if _is_set(row, run.config)]


def _is_set(row: HookRow, config: RunSettings) -> bool:
    return not is_missing(row.location) and bool(config[row.key])
