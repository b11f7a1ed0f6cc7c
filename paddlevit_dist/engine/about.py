"""What a checkpoint says of itself, and whether that fits the run that loads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional

import paddle

from .. import __version__
from ..checkpoint import store as checkpoints
from ..checkpoint.weights import checkpoint_in
from ..config import dump_yaml
from ..config.table import leaves
from ..contracts.task import Task
from ..errors import UserError
from ..text_files import parse_yaml, read_yaml

# Settings that change no number of a training run: where things are, what is reported when, how a step is computed.
# Processes and batches count by their product, which is compared as "effective batch"; what follows from the size of
# the training set by what followed, NUM_EPOCHS.
_NEUTRAL = frozenset(
    """
    SAVE_FREQ SAVE_EVERY_UPDATES SAVE_EVERY_MINUTES SAVE_IN_BACKGROUND KEEP_EPOCHS KEEP_UPDATES STOP_AFTER_SECONDS
    VALIDATE_FREQ REPORT_FREQ REPORT EVAL_AMP LOG_TO SAVE_PREDICTIONS CPU_TUNING TO_STATIC DETERMINISTIC NGPUS
    DATA.BATCH_SIZE
    DATA.BATCH_SIZE_EVAL
    DATA.DATA_PATH DATA.CACHE_FOLDER DATA.NUM_WORKERS DATA.PREFETCH DATA.LOADER_TIMEOUT_SECONDS DATA.ON_BAD_SAMPLE
    DATA.ALLOW_LEFT_OUT DATA.MAX_PIXELS VOLUMES.MAX_VOXELS
    WATCHDOG_SECONDS
    TRAIN.NUM_SAMPLES TRAIN.EPOCH_LIMITS DATA.GLOBAL_BATCH_SIZE
    TRAIN.ACCUM_ITER TRAIN.EMPTY_CACHE_FREQ TRAIN.FIND_UNUSED_PARAMETERS TRAIN.RECOMPUTE TRAIN.STOP_AFTER_EPOCH
    TRAIN.BUCKET_MEGABYTES TRAIN.MAX_SKIPPED_UPDATES TRAIN.OPTIMIZER.FUSED
    """.split()
)

# Settings of one start, not of the training: what is resumed, and where it is written.
_OF_THE_START = frozenset(
    """
    BASE IMPORTS SAVE EVAL DATA.SPLIT REPLAY SELFTEST ALLOW_CHANGES MODEL.PRETRAINED MODEL.PRETRAINED_PART
    MODEL.MINIMUM_LOADED MODEL.PRETRAINED_REQUIRED MODEL.BACKBONE_PRETRAINED MODEL.RESUME TRAIN.LAST_EPOCH
    """.split()
)

# Settings that are as the data need it where they are None; what comes of that is compared as the task's input.
_OF_THE_DATA = frozenset({"DATA.EXIF_ROTATE"})

# Settings that decide what the weights compute.
_OF_THE_NETWORK = re.compile(r"TASK|MODEL\..*|POINTS\.INSTANCES\.(WIDTH|BLOCKS)|VOLUMES\.UNET_(WIDTH|DEPTH|BLOCKS)")

# Settings that a score does not depend on, besides those above: of training, or of which data are evaluated. How a
# sample is made of them is compared as the task's input.
_NOT_OF_A_SCORE = re.compile(
    r"""(TRAIN\.(?!TF32$)|DATA\.|POINTS\.(AUGMENT|ROOMS)\.).*|SEED|PROFILE|AMP\w*
    |MODEL\.(TYPE|NUM_CLASSES|DROPOUT|ATTENTION_DROPOUT|DROPPATH|FROZEN_STAGES)
    |POINTS\.(MAX_POINTS|MIX_PROB|LOVASZ_WEIGHT)
    |POINTS\.INSTANCES\.(FROZEN|FULL_SCALE|DISTORTION|FLIP|ROTATION|ELASTIC|COLOR_NOISE|PREPARE_EPOCHS)
    |POINTS\.INSTANCES\.(BACKGROUND_IOU|FOREGROUND_IOU|LOSS_WEIGHTS)
    |VOLUMES\.(FLIP|MIRROR_PAIRS|ROTATION_DEGREES|SCALE|INTENSITY_JITTER|NOISE|SIGMA_MM|LOSS|PEAK_WEIGHT)
    |DETECTION\.(TIGHT_PADDING|SHOWN_SCORE|EXPORT_SIZE)""",
    re.VERBOSE,
)


class Change(NamedTuple):
    """A setting that differs between a checkpoint and this run; ``alters`` where it changes the course of training."""

    name: str
    before: Any
    now: Any
    alters: bool


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> List[Change]:
    """The settings that differ, in the order in which ``now`` has them.

    A key that only one side knows comes from another version of this package and is left out.

    Args:
        before, now: configurations as nested mappings.
    """
    earlier = _values(before)
    return [
        Change(name, earlier[name], value, name not in _NEUTRAL)
        for name, value in _values(now).items()
        if name not in _OF_THE_START
        and name in earlier
        and earlier[name] != value
        and not (name in _OF_THE_DATA and None in (earlier[name], value))
    ]


def table_of(changes: List[Change]) -> List[str]:
    """Lines that show old and new side by side."""
    rows = [("setting", "before", "now", "")]
    rows += [(c.name, shown(c.before), shown(c.now), "alters the run" if c.alters else "") for c in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip() for row in rows]


def _values(tree: Mapping[str, Any]) -> Dict[str, Any]:
    """Values by dotted names, with lists for tuples, which YAML does not know."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in leaves(tree)}


def shown(value: Any) -> str:
    """A value on one line, not long, and without anything that moves a terminal's cursor."""
    text = str(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


def as_event(changes: List[Change]) -> Dict[str, List[Any]]:
    """The same for ``metrics.jsonl``: setting -> [before, now]."""
    return {change.name: [change.before, change.now] for change in changes}


def describe(config: Any, task: Task, datasets: Dict[str, Any]) -> Dict[str, Any]:
    """The content of ``about.yaml``: plain values."""
    return {
        "task": config.TASK,
        "model": config.MODEL.NAME,
        "input": task.about_input(),
        "data": {split: task.about_data(samples) for split, samples in datasets.items()},
        "versions": {"paddlevit_dist": __version__, "paddle": paddle.__version__},
        "settings": settings_of(config),
    }


def require_same_classes(source: str, config: Any, task: Task, samples: Any) -> List[str]:
    """Before an evaluation: the weights' classes have to be those of the data, in the same order.

    Names are compared where both sides have them, else their number; returns a line for the log if they differ and
    that is allowed.

    Raises:
        UserError: they differ, and -allow_changes was not given.
    """
    said = differing_classes(source, task, samples)
    if said is None:
        return _unknown_classes(source, task, samples)
    if not config.ALLOW_CHANGES:
        raise UserError(f"{source} was trained on other classes: {said}; use the same names, or add -allow_changes")
    return [f"note: {source} was trained on other classes: {said}"]


def _unknown_classes(source: str, task: Task, samples: Any) -> List[str]:
    """The line about weights that have as many classes as the data, and do not name them."""
    data = (checkpoints.read_about(source) or {}).get("data") or {}
    ours = task.about_data(samples).get("classes")
    if not ours or _known(data.values(), "classes"):
        return []
    return [
        f"note: classes unknown: {source} does not name its {len(ours):,} classes; the score takes them for those of "
        f"the data in their order ({shown(', '.join(map(str, ours)))})"
    ]


def differing_classes(source: str, task: Task, samples: Any) -> Optional[str]:
    """How the classes that the weights were trained on differ from those of the data, in words.

    None where they do not, or where it cannot be known.
    """
    data = (checkpoints.read_about(source) or {}).get("data") or {}
    now = task.about_data(samples)
    theirs, ours = _known(data.values(), "classes"), now.get("classes")
    different: List[str] = []
    there: Optional[int]
    here: Optional[int]
    if theirs and ours:
        if theirs == ours:
            return None
        different = [
            f"{number}: {shown(a)} there, {shown(b)} here" for number, (a, b) in enumerate(zip(theirs, ours)) if a != b
        ]
        there, here = len(theirs), len(ours)
    else:
        there, here = _known(data.values(), "number of classes"), now.get("number of classes")
        if there is None or here is None or there == here:
            return None
    said = f"{shown(there)} classes there, {here} here"
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        said = f"class {'; '.join(different[:3])}{more}"
    return said


def _known(facts: Iterable[Mapping[str, Any]], name: str) -> Any:
    """The value from the first split that has one, else None."""
    return next((of_split[name] for of_split in facts if of_split.get(name)), None)


def changed_data(source: str, task: Task, datasets: Dict[str, Any]) -> List[Change]:
    """What differs between the data that a checkpoint was trained on and this run's, whatever folder they are in."""
    data = (checkpoints.read_about(source) or {}).get("data")
    changes = []
    for split, samples in datasets.items():
        before, now = (data or {}).get(split) or {}, task.about_data(samples)
        changes += [
            Change(f"{split} {name}", before[name], now[name], alters=True)
            for name in now
            if name in before and before[name] != now[name]
        ]
    return changes


def settings_of(config: Any) -> Dict[str, Any]:
    """The configuration as nested plain values."""
    return parse_yaml(dump_yaml(config))


def earlier_settings(directory: Path) -> Optional[Dict[str, Any]]:
    """The configuration of the run that wrote a checkpoint: what the checkpoint says, else what its run's folder has.

    None where neither can be read.
    """
    settings = (checkpoints.read_about(str(directory)) or {}).get("settings")
    if settings is None:
        file = directory.parent.parent / "config.yaml"
        try:
            settings = read_yaml(file) if file.is_file() else None
        except (OSError, ValueError):
            settings = None
    return settings if isinstance(settings, dict) else None


def epochs_by_size(config: Any) -> Optional[int]:
    """The epochs that TRAIN.NUM_SAMPLES gave the training which -resume continues; None for a new or another one."""
    resume, train = config.MODEL.RESUME, config.TRAIN
    if not resume or train.NUM_SAMPLES is None:
        return None
    directory = checkpoint_in(config.SAVE if resume == "auto" else resume)
    settings = (checkpoints.read_about(str(directory)) or {}).get("settings")
    before = settings.get("TRAIN") if isinstance(settings, dict) else None
    if not isinstance(before, dict) or before.get("NUM_SAMPLES") != train.NUM_SAMPLES:
        return None
    epochs = before.get("NUM_EPOCHS")
    same_limits = _plain(before.get("EPOCH_LIMITS")) == _plain(train.EPOCH_LIMITS)
    return epochs if isinstance(epochs, int) and epochs > 0 and same_limits else None


def compare(source: str, config: Any, task: Task, *, must_match: bool) -> List[str]:
    """Compare what the checkpoint at ``source`` says of its input with this run's; returns lines for the log.

    Weights other than our checkpoints say nothing, and nothing is compared. A name that only one side has was added
    or removed, and is not compared either.

    Args:
        must_match: for an evaluation or a resumed training; weights to start a training from may differ, with a line.
    Raises:
        UserError: the two differ, they must not, and -allow_changes was not given.
    """
    about = checkpoints.read_about(source)
    if about is None:
        return []
    theirs, ours = about.get("input"), task.about_input()
    if not isinstance(theirs, dict) or (ours and not theirs):  # written before it existed, or before it said anything
        return [
            f"note: {source} was written before checkpoints described their input: it cannot be checked against this "
            "run's",
            *task.notices_of_old_weights(),
        ]
    theirs = task.completed_input(theirs)
    changes = [
        Change(name, theirs[name], value, alters=True)
        for name, value in ours.items()
        if name in theirs and _plain(value) != _plain(theirs[name])
    ]
    remedy = " and ".join(dict.fromkeys(task.remedy_for_input(change.name, change.before) for change in changes))
    return _differing(source, "was trained on other input", changes, config, must_match, remedy)


def compare_settings(source: str, config: Any, *, must_match: bool) -> List[str]:
    """Compare the settings that a score depends on with those of the run that wrote the checkpoint at ``source``;
    returns lines for the log.

    Weights of another network may fit in all their shapes: of as many heads, of more layers. How an evaluation is done
    (``POINTS.TEST_ROTATIONS``, ``VOLUMES.DECODING``, ...) may be chosen for it, and is only told.

    Args:
        must_match: for an evaluation; a training that starts from these weights gets a line about the network.
    Raises:
        UserError: the network is another, it must not be, and -allow_changes was not given.
    """
    if checkpoints.read_about(source) is None:
        return []
    path = checkpoint_in(source)
    before = earlier_settings(path if path.is_dir() else path.parent)
    changes = [
        change
        for change in changed_settings(before or {}, settings_of(config))
        if change.alters and not _NOT_OF_A_SCORE.fullmatch(change.name)
    ]
    of_network = [change for change in changes if _OF_THE_NETWORK.fullmatch(change.name)]
    others = [change for change in changes if change not in of_network] if must_match else []
    return [
        *_differing(source, "is of another network", of_network, config, must_match),
        *_differing(source, "was evaluated otherwise in its training", others, config, False),
    ]


def _differing(
    source: str,
    what: str,
    changes: List[Change],
    config: Any,
    must_match: bool,
    remedy: str = "use the same settings",
) -> List[str]:
    """The line about what differs, or the error where nothing may."""
    if not changes:
        return []
    said = f"{source} {what}: {'; '.join(f'{c.name} {shown(c.before)} there, {shown(c.now)} here' for c in changes)}"
    if must_match and not config.ALLOW_CHANGES:
        raise UserError(f"{said}; {remedy}, or add -allow_changes")
    return [f"note: {said}"]


def _plain(value: Any) -> Any:
    """Tuples as lists, which is what YAML gives back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
