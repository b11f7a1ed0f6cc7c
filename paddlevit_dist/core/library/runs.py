"""Train, evaluate and predict from a program or a notebook: the commands as functions, with equal results.

Paddle is imported after the environment variables of a run are set. Runs execute in the calling process, or in workers
that it starts; its signal handlers, environment and device are restored at the end.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import settings as configuration
from ..commands.run_folder import expand_run, find_output_keys
from ..commands.train import carry_out
from ..registry import plugins
from ..registry.lookup import find_job
from ..runtime import signals
from ..runtime.errors import Stopped, UserError
from ..runtime.lazy_names import needing_paddle
from ..runtime.run_folders import CONFIG, find_run, suggest_runs
from ..settings.command_line import format_words
from ..settings.every_run import RunSettings
from ..settings.files import StoredSettings

if TYPE_CHECKING:
    from paddle import nn

    from ..inference.predictor import PredictedRows

PathLike = str | os.PathLike[str]
_NOT_OF_CALLS = ("h", "version", "show_config", "eval", "cfg", "ngpus")


@dataclass(frozen=True)
class TrainedRun:
    """Result of a training run or an evaluation.

    It can be used as the path of its weights: ``evaluate(run)``, ``create_model(run, pretrained=True)``.

    Attributes:
        folder: output folder.
        values: values of the last evaluation by name, as in ``metrics.jsonl``; empty without an evaluation.
        intervals: lower and upper end of the values with a confidence interval.
        weights: the checkpoint of the last epoch, or the evaluated weights.
    """

    folder: Path
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    weights: str

    def __fspath__(self) -> str:
        return self.weights

    @cached_property
    def model(self) -> "nn.Layer":
        """Load the model with these weights once, in evaluation mode on the current device."""
        from .models import load_trained

        return load_trained(self.weights)


def train(
    config: PathLike,
    *,  # Any: type checkers match **keys with these parameters, too
    epochs: Any = None,
    data_path: Any = None,
    devices: Any = 1,
    output: Any = None,
    **keys: Any,
) -> TrainedRun:
    """Train like ``paddlevit-dist train -cfg=CONFIG``, with equal results.

    Args:
        config: YAML file, or the name of a recipe.
        epochs: int, value of the flag -epochs; None: the command's default.
        data_path: path, value of the flag -data_path; None: the command's default.
        devices: number of GPUs, or of processes on the CPU; 1: this process. Workers import code from files; classes
            that a notebook's cells register raise a UserError.
        output: path, value of the flag -output; None: the command's default.
        **keys: other flags by name (``batch_size=8``), and keys: ``**{"TRAIN.BASE_LR": 1e-3}``.

    Raises:
        UserError: a setting, file or value is wrong; the process continues.
        KeyboardInterrupt: Ctrl-C; a checkpoint is saved, and ``resume="auto"`` with this ``output`` continues.
        Stopped: SIGTERM or STOP_AFTER_SECONDS; a checkpoint is saved.
        StorageOutage: the drive or server of the data is away; ``resume="auto"`` continues from the last checkpoint.
    """
    options = {"epochs": epochs, "data_path": data_path, "output": output, **keys}
    folder = _run(_format_arguments(config, devices, options))
    values, intervals, _ = _last_evaluation(folder)
    return TrainedRun(folder, values, intervals, str(folder / "checkpoints" / "last"))


def evaluate(
    weights: PathLike,
    config: PathLike | None = None,
    *,
    data_path: Any = None,
    devices: Any = 1,
    output: Any = None,
    **keys: Any,
) -> TrainedRun:
    """Evaluate weights once like ``paddlevit-dist evaluate -cfg=CONFIG -pretrained=WEIGHTS``.

    Args:
        weights: a run's folder (its best checkpoint, else its last), a checkpoint, a file, a URL or a published name;
            without ``config`` also an exported model.
        config: YAML file, or the name of a recipe; None: settings of the run's ``config.yaml``, or those stored with
            weights or an exported model, without importing their modules or writing to their folders. Pass modules that
            the run needs as ``IMPORTS=["my_things.py"]``.
        data_path: path, value of the flag -data_path; None: the command's default.
        devices: number of GPUs, or of processes on the CPU; 1: this process.
        output: output folder; None: with a ``config``, the command's default; else the current folder of the run.
        **keys: other flags and keys, see ``train``.

    Raises:
        UserError: the weights do not exist, or do not fit the model or the data.
    """
    source = os.fspath(weights)
    options = {"data_path": data_path, "output": output, **keys}
    if config is not None:
        folder = _run(["-eval", *_format_arguments(config, devices, {"pretrained": source, **options})])
        return TrainedRun(folder, *_last_evaluation(folder))
    modules = keys.get("IMPORTS") or keys.get("import") or []
    plugins.load([modules] if isinstance(modules, str) else modules, "IMPORTS")
    run_folder = find_run(source)
    if run_folder is not None:
        run_config = run_folder / CONFIG
        options = {"pretrained": source, **find_output_keys(run_config), **options}
        options["output"] = run_folder if output is None else output
        folder = _run(["-eval", *_format_arguments(run_config, devices, options)], is_trusted=False)
    else:
        words, _, stored, _ = expand_run(["-eval", source, *_format_arguments(None, devices, options)])
        if source in words:
            raise UserError(
                f"evaluate: {source} has no config.yaml of a run: add config, a recipe or YAML file"
                f"{suggest_runs(source)}"
            )
        folder = _run(words, is_trusted=False, stored=stored)
    return TrainedRun(folder, *_last_evaluation(folder))


def predict(weights: PathLike, inputs: Any, **options: Any) -> "PredictedRows":
    """Predict like ``paddlevit-dist predict WEIGHTS INPUTS``, and return the rows without writing files.

    Rows are in the order of the inputs, with the arrays of ``Predictor``, which keeps the model for several calls.

    Args:
        weights: ``source`` of ``Predictor``.
        inputs: one or several paths of files and folders; for tasks of images also PIL images, uint8 arrays and bytes.
        **options: options of ``Predictor``.

    Raises:
        UserError: the weights do not exist, or an input cannot be read.
    """
    with needing_paddle("predict"):
        from ..inference.predictor import Predictor

    predictor = Predictor(weights, **options)
    rows = predictor(inputs)
    if rows.unreadable:
        raise UserError(f"predict: {': '.join(rows.unreadable[0])}; use Predictor to skip unreadable inputs")
    return rows


def load_config(config: PathLike, **keys: Any) -> RunSettings:
    """Load, merge and check the configuration of a recipe or YAML file, and return its frozen values.

    ``keys`` are flags and keys, see ``train``. Raises UserError: a setting is unknown, wrong, or does not fit another.
    """
    return configuration.load(_format_arguments(config, 1, keys), configuration.DEFAULT_RECIPE).values


def _format_arguments(config: PathLike | None, devices: int, options: Mapping[str, Any]) -> list[str]:
    """Format keyword arguments as command-line arguments; None: they name no file of settings."""
    for name in options:
        if name in _NOT_OF_CALLS:
            raise UserError(f"{name}: only the command has this flag: remove it from the call")
    named = [] if config is None else [f"-cfg={os.fspath(config)}"]
    return [*named, f"-ngpus={devices}", *format_words(options)]


def _run(words: Sequence[str], is_trusted: bool = True, stored: StoredSettings | None = None) -> Path:
    """Run a command line in this process, and return the output folder; for the others see ``settings.load``."""
    from ..launch import devices, tuning

    devices.refuse_to_start_in_a_worker()
    run = configuration.load(words, configuration.DEFAULT_RECIPE, is_trusted, stored=stored)
    job = find_job(run.values)
    if job is not None:
        raise UserError(f"{job}: only the command supports this key: run paddlevit-dist train")
    devices.check_launcher_variables(run.values.NGPUS)
    with (
        needing_paddle("evaluate" if run.values.EVAL else "train"),
        tuning.environment_for_call(run.values.NGPUS, run.values.CPU_TUNING) as notices,
        _restore_process_state(not run.values.EVAL, run.values.NGPUS == 1),
    ):
        folder = carry_out(run, [*devices.drop_stale_variables(), *notices])
    assert folder is not None  # -show_config is refused
    return folder


@contextlib.contextmanager
def _restore_process_state(training: bool, computes: bool) -> Iterator[None]:
    """Restore signal handlers and device after a run; a process that does not compute must not occupy a device."""
    import paddle

    from ..data.loader import end_unfinished

    device = paddle.get_device() if computes else ""
    try:
        with signals.installed(), paddle.utils.unique_name.guard():
            signals.set_mode(training)
            yield
    except Stopped as stop:
        if stop.reason != "SIGINT":
            raise
        raise KeyboardInterrupt(str(stop)) from None
    finally:
        end_unfinished()
        if computes and paddle.get_device() != device:
            paddle.set_device(device)


def _last_evaluation(folder: Path) -> tuple[dict[str, float], dict[str, tuple[float, float]], str]:
    """Return values, intervals, and evaluated weights of the last evaluation."""
    from ..runtime.metrics_file import get_values, recorded_events

    evaluations = [
        event for event in recorded_events(folder) if event["kind"] == "evaluation" and "superseded" not in event
    ]
    if not evaluations:
        return {}, {}, ""
    last = evaluations[-1]
    ends = {key: tuple(pair) for key, pair in last.get("interval", {}).items() if isinstance(pair, list)}
    values = {key: value for key, value in get_values(last).items() if isinstance(value, (int, float))}
    return values, ends, str(last.get("weights", ""))
