"""What must fit together among values that are each valid by themselves."""

from __future__ import annotations

from yacs.config import CfgNode

from ..errors import UserError
from ..registry import RECIPES, list_names, room_of
from .defaults import KEYS

_MIXING = ("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.CUTMIX_MINMAX")  # each switches mixing on
_LEAST_KEPT = 0.5  # a batch norm that keeps less in a step was hardly meant


class _Given:
    """Names a value in a message: key, value, and the place that set it."""

    def __init__(self, values: CfgNode, places: dict[str, str]) -> None:
        self._values = values
        self._places = places

    def __getitem__(self, name: str) -> str:
        value = self._values
        for part in name.split("."):
            value = value[part]
        return f"{name} {value} ({self._places.get(name, 'default')})"


def check(values: CfgNode, places: dict[str, str]) -> list[str]:
    """Check the merged ``values``, each set at ``places[name]`` or left at its default, and return notices.

    Raises:
        UserError: two values contradict each other.
    """
    given = _Given(values, places)
    _check_images(values, given)
    _check_points(values, given)
    if values.EVAL:
        _check_evaluation(values, given)
        return []
    if values.SAVE_PREDICTIONS:
        raise UserError(
            f"{given['SAVE_PREDICTIONS']}: predictions are written by an evaluation; add -eval or leave it out"
        )
    if values.TO_STATIC and values.TRAIN.RECOMPUTE:
        raise UserError(
            f"{given['TO_STATIC']} and {given['TRAIN.RECOMPUTE']}: a compiled model keeps what its backward pass "
            "needs; keep one"
        )
    _check_epochs(values, given)
    _check_learning_rate(values, given)
    _check_mixing(values, given)
    if values.DATA.CLASS_BALANCED and values.TRAIN.CLASS_WEIGHTS is not None:
        raise UserError(
            f"{given['DATA.CLASS_BALANCED']} and {given['TRAIN.CLASS_WEIGHTS']}: "
            "both make up for rare classes; keep one"
        )
    notices = _never_reached(values, given)
    notices += _unused_settings(values.TRAIN, given, places)
    if values.MODEL.PRETRAINED and values.MODEL.RESUME:
        notices.append(f"{given['MODEL.RESUME']} wins over {given['MODEL.PRETRAINED']} if it finds a checkpoint")
    return notices + _momentum_of_others(values.TRAIN, given)


def check_rooms(values: CfgNode, places: dict[str, str]) -> None:
    """Task, data set and model have to be of one kind; a user's own fit anything.

    Raises:
        UserError: they are not.
    """
    given = _Given(values, places)
    task = room_of("task", values.TASK)
    for name, kind, value in (
        ("DATA.DATASET", "dataset", values.DATA.DATASET),
        ("MODEL.NAME", "model", values.MODEL.NAME),
    ):
        room = room_of(kind, value)
        if task is not None and room is not None and task != room:
            others = ", ".join(other for other in list_names(kind) if room_of(kind, other) == task)
            fitting = f", or one of {others}" if kind == "dataset" else ""
            raise UserError(
                f"{given[name]} is for {room}, {given['TASK']} for {task}: choose a recipe for {room}, such as "
                f"-cfg={RECIPES[room]}{fitting}"
            )


def _check_images(values: CfgNode, given: _Given) -> None:
    channels = values.DATA.IMAGE_CHANNELS
    for name in ("DATA.IMAGENET_MEAN", "DATA.IMAGENET_STD"):
        if len(values.DATA[name.split(".")[-1]]) != channels:
            number = f"{channels} number{'s' if channels > 1 else ''}"
            raise UserError(f"{given[name]}: expected {number}, as many as {given['DATA.IMAGE_CHANNELS']}")
    for name in ("DATA.CROP_SCALE", "DATA.CROP_RATIO"):
        low, high = values.DATA[name.split(".")[-1]]
        if low > high:
            raise UserError(f"{given[name]}: expected the smaller number first")


def _check_points(values: CfgNode, given: _Given) -> None:
    low, high = values.POINTS.COLOR_RANGE
    if low >= high:
        raise UserError(f"{given['POINTS.COLOR_RANGE']}: expected the smaller number first, such as [-0.5, 0.5]")


def _check_evaluation(values: CfgNode, given: _Given) -> None:
    pretrained, resume = values.MODEL.PRETRAINED, values.MODEL.RESUME
    if not pretrained and not resume:
        raise UserError(f"{given['EVAL']}: random weights are never evaluated: name a checkpoint with -pretrained=PATH")
    if pretrained and resume:
        raise UserError(f"{given['MODEL.PRETRAINED']} and {given['MODEL.RESUME']}: an evaluation takes one checkpoint")


def _never_reached(values: CfgNode, given: _Given) -> list[str]:
    """Parts of a training that its number of epochs leaves out."""
    preparing = values.POINTS.INSTANCES.PREPARE_EPOCHS
    if values.TASK == "pointgroup" and values.TRAIN.NUM_EPOCHS <= preparing:
        return [
            f"{given['POINTS.INSTANCES.PREPARE_EPOCHS']}: the network that scores clusters is never trained in "
            f"{given['TRAIN.NUM_EPOCHS']}: set it lower, or train longer"
        ]
    return []


def _check_epochs(values: CfgNode, given: _Given) -> None:
    train = values.TRAIN
    epochs = given["TRAIN.NUM_EPOCHS"]
    if train.WARMUP_STEPS is not None and train.WARMUP_EPOCHS > 0:
        raise UserError(
            f"{given['TRAIN.WARMUP_STEPS']} and {given['TRAIN.WARMUP_EPOCHS']}: "
            "keep one: set WARMUP_STEPS to None or WARMUP_EPOCHS to 0"
        )
    if train.WARMUP_EPOCHS >= train.NUM_EPOCHS:
        raise UserError(f"{given['TRAIN.WARMUP_EPOCHS']}: expected fewer than {epochs}")
    if train.LAST_EPOCH >= train.NUM_EPOCHS:
        raise UserError(f"{given['TRAIN.LAST_EPOCH']}: expected fewer than {epochs}, or nothing is left to train")
    if train.STOP_AFTER_EPOCH is not None and train.STOP_AFTER_EPOCH > train.NUM_EPOCHS:
        raise UserError(f"{given['TRAIN.STOP_AFTER_EPOCH']}: expected at most {epochs}")


def _check_learning_rate(values: CfgNode, given: _Given) -> None:
    train = values.TRAIN
    base = given["TRAIN.BASE_LR"]
    schedule = train.LR_SCHEDULER.NAME
    if (train.WARMUP_EPOCHS or train.WARMUP_STEPS) and train.WARMUP_START_LR > train.BASE_LR:
        raise UserError(f"{given['TRAIN.WARMUP_START_LR']}: expected at most {base}: a warm-up rises to it")
    if schedule in ("cosine", "poly") and train.END_LR > train.BASE_LR:
        raise UserError(f"{given['TRAIN.END_LR']}: expected at most {base}: {schedule} falls from it")
    if schedule == "step":
        milestones = train.LR_SCHEDULER.MILESTONES
        if not milestones or milestones != sorted(set(milestones)):
            raise UserError(
                f"{given['TRAIN.LR_SCHEDULER.MILESTONES']}: expected rising epochs for step, such as [30, 60]"
            )


def _check_mixing(values: CfgNode, given: _Given) -> None:
    train = values.TRAIN
    if train.CUTMIX_MINMAX is not None and train.CUTMIX_MINMAX[0] > train.CUTMIX_MINMAX[1]:
        raise UserError(f"{given['TRAIN.CUTMIX_MINMAX']}: expected the smaller number first")
    for name in _MIXING:
        if train[name.split(".")[-1]] and train.MIXUP_PROB and values.DATA.BATCH_SIZE == 1:
            raise UserError(
                f"{given[name]}: an image is mixed with another of its batch, but {given['DATA.BATCH_SIZE']}"
            )


def _momentum_of_others(train: CfgNode, given: _Given) -> list[str]:
    """A notice of a batch norm's momentum that looks like PyTorch's."""
    momentum = train.BATCH_NORM_MOMENTUM
    if momentum is None or momentum >= _LEAST_KEPT:
        return []
    return [
        f"{given['TRAIN.BATCH_NORM_MOMENTUM']}: a step keeps {momentum:.3g} of the running statistics, and not more; "
        "PyTorch counts the other way round, its 0.02 is 0.98 here"
    ]


def _unused_settings(train: CfgNode, given: _Given, places: dict[str, str]) -> list[str]:
    """Notices about settings of the training that others leave without effect."""
    notices = []

    def unused(name: str, why: str) -> None:
        if name in places and train[name.split(".")[-1]] != KEYS[name].default:
            notices.append(f"{given[name]}: no effect: {why}")

    if train.OPTIMIZER.DAMPENING and (train.OPTIMIZER.NAME != "SGD" or not train.OPTIMIZER.MOMENTUM):
        other = "MOMENTUM" if train.OPTIMIZER.NAME == "SGD" else "NAME"
        notices.append(
            f"{given['TRAIN.OPTIMIZER.DAMPENING']}: no effect: it dampens the momentum of SGD, and "
            f"{given[f'TRAIN.OPTIMIZER.{other}']}"
        )
    policy = None
    if train.RAND_AUGMENT:
        policy = given["TRAIN.RAND_AUGMENT"]
        unused("TRAIN.AUTO_AUGMENT", f"{policy} takes its place")
        if train.RAND_AUGMENT is not True:
            unused("TRAIN.RAND_AUGMENT_LAYERS", f"{policy} says it")
            unused("TRAIN.RAND_AUGMENT_MAGNITUDE", f"{policy} says it")
    elif train.AUTO_AUGMENT and not str(train.AUTO_AUGMENT).startswith("3a"):
        policy = given["TRAIN.AUTO_AUGMENT"]
    if policy:
        unused("TRAIN.COLOR_JITTER", f"{policy} takes its place")
    if "TRAIN.MIXUP_PROB" in places and train.MIXUP_PROB and not places.keys() & set(_MIXING):
        notices.append(f"{given['TRAIN.MIXUP_PROB']}: no effect: none of {', '.join(_MIXING)} is set")
    return notices
