"""What must fit together among values that are each valid by themselves."""

from __future__ import annotations

from yacs.config import CfgNode

from ..errors import UserError


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
    if values.EVAL:
        _check_evaluation(values, given)
        return []
    _check_epochs(values, given)
    _check_learning_rate(values, given)
    if values.MODEL.PRETRAINED and values.MODEL.RESUME:
        return [f"{given['MODEL.RESUME']} wins over {given['MODEL.PRETRAINED']} if it finds a checkpoint"]
    return []


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


def _check_evaluation(values: CfgNode, given: _Given) -> None:
    pretrained, resume = values.MODEL.PRETRAINED, values.MODEL.RESUME
    if not pretrained and not resume:
        raise UserError(f"{given['EVAL']}: random weights are never evaluated: name a checkpoint with -pretrained=PATH")
    if pretrained and resume:
        raise UserError(f"{given['MODEL.PRETRAINED']} and {given['MODEL.RESUME']}: an evaluation takes one checkpoint")


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
