"""Train, evaluate and predict from a program or a notebook: the commands as functions, with the same numbers.

Nothing here imports Paddle before the environment of a run is there. All of it happens in the calling process, or in
workers that it starts; afterwards its signal handlers, environment and device are what they were.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from .. import plugins
from .. import settings as configuration
from ..commands.train import carry_out
from ..extension import find_job
from ..runtime import signals
from ..runtime.errors import Stopped, UserError
from ..runtime.lazy_names import needing_paddle
from ..settings.command_line import FLAGS
from ..settings.every_run import RunSettings

if TYPE_CHECKING:
    from paddle import nn

    from ..tasks.prediction import Row

PathLike = str | os.PathLike[str]
_NOT_OF_CALLS = ("h", "version", "show_config", "eval", "cfg", "ngpus")


@dataclass(frozen=True)
class TrainedRun:
    """Hold what a training or an evaluation has computed.

    As a path it is the path of its weights: ``evaluate(run)``, ``create_model(run, pretrained=True)``.

    Attributes:
        folder: its output.
        values: of the last evaluation, by name, as ``metrics.jsonl`` has them; empty where nothing was evaluated.
        intervals: lower and upper end for each of these values that has some.
        weights: the checkpoint of the last epoch, or the weights that were evaluated.
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
    *,  # Any: type checkers take a dictionary of keys for these, too
    epochs: Any = None,
    data_path: Any = None,
    devices: Any = 1,
    output: Any = None,
    **keys: Any,
) -> TrainedRun:
    """Train as ``paddlevit-dist train -cfg=CONFIG`` does, with its numbers.

    Args:
        config: YAML file, or the name of a recipe.
        epochs: int, as the flag of this name; None: as the command has it without the flag.
        data_path: a path, likewise.
        devices: GPUs, or processes on the CPU; 1: this process. Workers import what they run from files. They do not
            know classes that a notebook's cells register, which a UserError says.
        output: a path, as the flag of this name.
        **keys: the other flags by their names (``batch_size=8``), and keys: ``**{"TRAIN.BASE_LR": 1e-3}``.

    Raises:
        UserError: a wrong setting, file or value; nothing has ended the process.
        KeyboardInterrupt: Ctrl-C; what was trained is saved, and ``resume="auto"`` with this ``output`` continues.
        Stopped: SIGTERM or STOP_AFTER_SECONDS; it is saved, too.
    """
    given = {"epochs": epochs, "data_path": data_path, "output": output, **keys}
    folder = _run(_format_arguments(config, devices, given))
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
    """Evaluate weights once as ``paddlevit-dist evaluate -cfg=CONFIG -pretrained=WEIGHTS`` does.

    Args:
        weights: a run's folder (its best checkpoint, else its last), a checkpoint, a file, an address or a name.
        config: None: the ``config.yaml`` of the run that has made them, as settings alone: nothing that it names is
            imported or written to. Modules that the run needs are given as ``IMPORTS=["my_things.py"]``.
        data_path: as that of ``train``.
        devices: as those of ``train``.
        output: None: with a ``config``, as the command has it; else the run's folder, wherever it is now.
        **keys: as those of ``train``.

    Raises:
        UserError: there are no such weights, or they do not fit the model or the data.
    """
    source = os.fspath(weights)
    given = {"data_path": data_path, "output": output, "pretrained": source, **keys}
    if config is not None:
        folder = _run(["-eval", *_format_arguments(config, devices, given)])
    else:
        beside = _build_config(source)
        named = keys.get("IMPORTS") or keys.get("import") or []
        plugins.load([named] if isinstance(named, str) else named, "IMPORTS")
        given = {**_find_output_keys(beside), **given, "output": beside.parent if output is None else output}
        folder = _run(["-eval", *_format_arguments(beside, devices, given)], is_trusted=False)
    return TrainedRun(folder, *_last_evaluation(folder))


def predict(weights: PathLike, inputs: Any, **options: Any) -> "list[Row]":
    """Predict as ``paddlevit-dist predict WEIGHTS INPUTS`` does, and return its rows without writing a file.

    Rows are in the inputs' order. ``Predictor`` keeps the model for several calls.

    Args:
        weights: as ``Predictor`` takes them.
        inputs: a path or several: files and folders; for tasks of images also PIL images or uint8 arrays.
        **options: of ``Predictor``.

    Raises:
        UserError: there are no such weights, or an input cannot be read.
    """
    with needing_paddle("predict"):
        from ..inference.predictor import Predictor

    predictor = Predictor(weights, **options)
    rows = predictor(inputs)
    if predictor.unreadable:
        raise UserError(f"predict: {': '.join(predictor.unreadable[0])}; Predictor leaves such inputs out")
    return rows


def load_config(config: PathLike, **keys: Any) -> RunSettings:
    """Load, merge and check the configuration of a recipe or YAML file; it is frozen, as in ``values.TRAIN.BASE_LR``.

    Args:
        config: YAML file, or the name of a recipe.
        **keys: as those of ``train``.

    Raises:
        UserError: a setting is not known, wrong, or does not fit another.
    """
    return configuration.load(_format_arguments(config, 1, keys), configuration.EXAMPLE).values


def _format_arguments(config: PathLike, devices: int, given: Mapping[str, Any]) -> list[str]:
    """Write the command line that says the same."""
    words = [f"-cfg={os.fspath(config)}", f"-ngpus={devices}"]
    for name, value in given.items():
        flag = FLAGS.get(name)
        if name in _NOT_OF_CALLS:
            raise UserError(f"{name}: this is no keyword here; it is a flag of the command alone")
        if value is None and flag is not None:
            continue
        if flag is not None and flag.argument is None:
            words += [f"-{name}"] if value else []
        else:
            words.append(f"-{name}={_text(value)}" if flag else f"{name}={_text(value)}")
    return words


def _text(value: Any) -> str:
    """Write a value as it is typed."""
    if isinstance(value, (list, tuple)):
        return yaml.safe_dump(list(value), default_flow_style=True, width=10**6).strip()
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _find_output_keys(config: Path) -> dict[str, Any]:
    """Return the keys that keep an evaluation from writing elsewhere than beside a run that was moved or copied."""
    values = {setting.name: setting.value for setting in configuration.files.read(str(config))}
    is_in_place = os.path.abspath(str(values.get("SAVE", ""))) == os.path.abspath(config.parent)
    return {} if is_in_place else {"DATA.CACHE_FOLDER": "None"}


def _build_config(source: str) -> Path:
    folders = Path(source), *Path(source).absolute().parents[:2]  # also of a checkpoint
    found = next((one / "config.yaml" for one in folders if (one / "config.yaml").is_file()), None)
    if found is None:
        raise UserError(f"evaluate: no config.yaml of a run is beside {source}: give config, a recipe or YAML file")
    return found


def _run(words: Sequence[str], is_trusted: bool = True) -> Path:
    """Carry out a command line in this process, and return the output folder.

    Args:
        words: the command line.
        is_trusted: as of ``settings.load``.
    """
    from ..launch import devices, tuning

    plugins.refuse_to_start_in_a_worker()
    run = configuration.load(words, configuration.EXAMPLE, is_trusted)
    job = find_job(run.values)
    if job is not None:
        raise UserError(f"{job}: such a job is the command's alone: paddlevit-dist train")
    devices.check_launcher_variables(run.values.NGPUS)
    with (
        needing_paddle("evaluate" if run.values.EVAL else "train"),
        tuning.environment_for_call(run.values.NGPUS, run.values.CPU_TUNING) as notices,
        _as_before(not run.values.EVAL, run.values.NGPUS == 1),
    ):
        folder = carry_out(run, [*devices.drop_stale_variables(), *notices])
    assert folder is not None  # -show_config is refused
    return folder


@contextlib.contextmanager
def _as_before(training: bool, computes: bool) -> Iterator[None]:
    """Carry out a run, and leave handlers and device as they were.

    Parameters are named meanwhile as if they were the first of the process.

    Args:
        training: the run trains.
        computes: this process computes. One that only starts workers asks for no device, which would be held.
    """
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
    """Return values, intervals, and the weights that were evaluated."""
    from ..runtime.metrics_file import recorded_events

    told = [event for event in recorded_events(folder) if event["kind"] == "evaluation" and "superseded" not in event]
    if not told:
        return {}, {}, ""
    last = dict(told[-1])
    ends = {name: tuple(pair) for name, pair in last.pop("interval", {}).items() if isinstance(pair, list)}
    weights = last.pop("weights", "")
    for name in ("time", "epoch", "update"):
        last.pop(name, None)
    values = {name: value for name, value in last.items() if isinstance(value, (int, float))}
    return values, ends, str(weights)
