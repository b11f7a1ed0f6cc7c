"""Checks and derived values of the keys that every run reads; the keys themselves are in ``settings.every_run``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from yacs.config import CfgNode

from ..checkpoint.published import find_published
from ..runtime.errors import UserError
from ..settings import run_length
from ..settings.every_run import RunSettings, TrainSection
from ..settings.key import COMMAND_LINE, ConfigView, IgnoredKeys, KeySetting, KeyTable, get_value
from ..settings.section import rows

_KEYS = {row.name: row for row in rows(RunSettings)}
_SPLIT_NAME = re.compile(r"\w[\w.-]*")
_OPTIMIZER_DEFAULTS: dict[str, dict[str, Any]] = {
    "Lion": {"BETAS": (0.9, 0.99)},
    "LAMB": {"EPS": 1e-6},
    "Muon": {"MOMENTUM": 0.95},
}
_MIN_PLAUSIBLE_MOMENTUM = 0.5  # a batch norm momentum below is probably stated in PyTorch's convention


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]) -> list[str]:
    _drop_recipe_weights(values, settings)
    for name, value in _OPTIMIZER_DEFAULTS.get(values.TRAIN.OPTIMIZER.NAME, {}).items():
        if f"TRAIN.OPTIMIZER.{name}" not in settings:
            values.TRAIN.OPTIMIZER[name] = value
    notices = run_length.resolve_batch_size(values, settings, all_settings)
    return notices + run_length.resolve_warmup(values, settings, all_settings, _KEYS["TRAIN.NUM_EPOCHS"])


def _drop_recipe_weights(values: CfgNode, settings: Mapping[str, KeySetting]) -> None:
    """Ignore a recipe's published start weights in an evaluation, which loads a run's, unless the recipe evaluates."""
    model, pretrained, evaluates = values.MODEL, settings.get("MODEL.PRETRAINED"), settings.get("EVAL")
    is_from_recipe = model.PRETRAINED_REQUIRED and pretrained is not None and pretrained.source != COMMAND_LINE
    if pretrained is not None and evaluates is not None and evaluates.source == pretrained.source:
        return
    if values.EVAL and is_from_recipe and find_published(model.PRETRAINED) is not None:
        model.PRETRAINED = None


def check(view: ConfigView[RunSettings]) -> list[str]:
    """Check that no two values contradict each other, and return notices.

    Raises:
        UserError: two values do.
    """
    values = view.values
    pretrained, resume = values.MODEL.PRETRAINED, values.MODEL.RESUME
    if not _SPLIT_NAME.fullmatch(values.DATA.SPLIT):
        raise UserError(f"{view['DATA.SPLIT']}: expected the name of a split, such as test")
    if values.EVAL:
        if not (pretrained or resume or values.get("EXPORTED")):
            raise UserError(
                f"{view['EVAL']}: random weights are never evaluated; name a checkpoint with -pretrained=PATH"
            )
        if pretrained and resume not in (None, "auto"):  # config.yaml of a run that was resumed says auto
            raise UserError(
                f"{view['MODEL.PRETRAINED']} and {view['MODEL.RESUME']}: an evaluation takes one checkpoint"
            )
        return []
    if values.DATA.SPLIT != "val":
        raise UserError(f"{view['DATA.SPLIT']}: training evaluates on val; add -eval or remove -split")
    if values.SAVE_PREDICTIONS:
        raise UserError(
            f"{view['SAVE_PREDICTIONS']}: only an evaluation writes predictions; add -eval or remove SAVE_PREDICTIONS"
        )
    if values.TO_STATIC and values.TRAIN.RECOMPUTE:
        raise UserError(
            f"{view['TO_STATIC']} and {view['TRAIN.RECOMPUTE']}: a compiled model stores all activations for its "
            "backward pass; set one of them to False"
        )
    _check_epochs(values.TRAIN, view)
    _check_learning_rate(values.TRAIN, view)
    notices = []
    if pretrained and resume:
        notices.append(f"{view['MODEL.RESUME']} wins over {view['MODEL.PRETRAINED']} if it finds a checkpoint")
    _check_momentum(values.TRAIN, view)
    if values.TRAIN.LORA.RANK and not (pretrained or resume):
        raise UserError(
            f"{view['TRAIN.LORA.RANK']}: it trains a few values for frozen weights; name these with -pretrained=WEIGHTS"
        )
    if values.TRAIN.LORA.RANK and values.TO_STATIC:
        raise UserError(
            f"{view['TRAIN.LORA.RANK']} and {view['TO_STATIC']}: compiled models take no such matrices; set one of "
            "them to 0 or False"
        )
    momentum = values.TRAIN.BATCH_NORM_MOMENTUM
    if momentum is not None and momentum < _MIN_PLAUSIBLE_MOMENTUM:
        notices.append(
            f"{view['TRAIN.BATCH_NORM_MOMENTUM']}: each step keeps only {momentum:.3g} of the running statistics; "
            "PyTorch's momentum is 1 minus this value: its 0.02 is 0.98 here"
        )
    return notices


def _check_epochs(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    epochs = view["TRAIN.NUM_EPOCHS"]
    if train.WARMUP_STEPS is not None and train.WARMUP_EPOCHS > 0:
        raise UserError(
            f"{view['TRAIN.WARMUP_STEPS']} and {view['TRAIN.WARMUP_EPOCHS']}: "
            "keep one: set WARMUP_STEPS to None or WARMUP_EPOCHS to 0"
        )
    if train.EPOCH_LIMITS[0] > train.EPOCH_LIMITS[1]:
        raise UserError(f"{view['TRAIN.EPOCH_LIMITS']}: expected the smaller number first")
    if train.NUM_SAMPLES is not None and train.WARMUP_EPOCHS >= train.EPOCH_LIMITS[0]:
        raise UserError(f"{view['TRAIN.WARMUP_EPOCHS']}: expected fewer than {view['TRAIN.EPOCH_LIMITS']}")
    if train.WARMUP_EPOCHS >= train.NUM_EPOCHS:
        raise UserError(f"{view['TRAIN.WARMUP_EPOCHS']}: expected fewer than {epochs}")
    if train.LAST_EPOCH >= train.NUM_EPOCHS:
        raise UserError(f"{view['TRAIN.LAST_EPOCH']}: expected fewer than {epochs}, or nothing is left to train")
    if train.STOP_AFTER_EPOCH is not None and train.STOP_AFTER_EPOCH > train.NUM_EPOCHS:
        raise UserError(f"{view['TRAIN.STOP_AFTER_EPOCH']}: expected at most {epochs}")


def _check_momentum(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    optimizer = train.OPTIMIZER
    if optimizer.NAME == "SGD" and optimizer.DAMPENING:
        for name in ("NESTEROV", "WARMUP_MOMENTUM"):
            if getattr(optimizer, name) not in (False, None):
                raise UserError(
                    f"{view[f'TRAIN.OPTIMIZER.{name}']} and {view['TRAIN.OPTIMIZER.DAMPENING']}: SGD takes one of "
                    "them; remove the other"
                )
    if optimizer.WARMUP_MOMENTUM is not None and optimizer.WARMUP_MOMENTUM > optimizer.MOMENTUM:
        raise UserError(
            f"{view['TRAIN.OPTIMIZER.WARMUP_MOMENTUM']}: expected at most {view['TRAIN.OPTIMIZER.MOMENTUM']}: the "
            "momentum rises to it"
        )


def _check_learning_rate(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    base = view["TRAIN.BASE_LR"]
    schedule = train.LR_SCHEDULER.NAME
    if (train.WARMUP_EPOCHS or train.WARMUP_STEPS) and train.WARMUP_START_LR > train.BASE_LR:
        raise UserError(f"{view['TRAIN.WARMUP_START_LR']}: expected at most {base}: a warm-up rises to it")
    if schedule in ("cosine", "poly") and train.END_LR > train.BASE_LR:
        raise UserError(f"{view['TRAIN.END_LR']}: expected at most {base}: {schedule} falls from it")
    if schedule == "step":
        milestones = train.LR_SCHEDULER.MILESTONES
        if not milestones or milestones != sorted(set(milestones)):
            raise UserError(
                f"{view['TRAIN.LR_SCHEDULER.MILESTONES']}: expected rising epochs for step, such as [30, 60]"
            )


_WARMUP_KEYS = (
    *("TRAIN.WARMUP_EPOCHS", "TRAIN.WARMUP_STEPS", "TRAIN.WARMUP_START_LR"),
    "TRAIN.OPTIMIZER.WARMUP_MOMENTUM",
)
_READ_BY = (  # keys, the key that decides whether they are read, and its values with which they are
    (("TRAIN.OPTIMIZER.EPS",), "TRAIN.OPTIMIZER.NAME", ("AdamW", "Adam", "LAMB", "Muon")),
    (("TRAIN.OPTIMIZER.BETAS",), "TRAIN.OPTIMIZER.NAME", ("AdamW", "Adam", "Lion", "LAMB", "Muon")),
    (("TRAIN.OPTIMIZER.MOMENTUM", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM"), "TRAIN.OPTIMIZER.NAME", ("SGD", "Muon")),
    (("TRAIN.OPTIMIZER.DAMPENING", "TRAIN.OPTIMIZER.NESTEROV"), "TRAIN.OPTIMIZER.NAME", ("SGD",)),
    (("TRAIN.OPTIMIZER.FUSED",), "TRAIN.OPTIMIZER.NAME", ("AdamW", "Adam", "SGD")),
    (("TRAIN.LR_SCHEDULER.MILESTONES", "TRAIN.LR_SCHEDULER.GAMMA"), "TRAIN.LR_SCHEDULER.NAME", ("step",)),
    (("TRAIN.LR_SCHEDULER.POWER",), "TRAIN.LR_SCHEDULER.NAME", ("poly",)),
    (("TRAIN.END_LR",), "TRAIN.LR_SCHEDULER.NAME", ("cosine", "poly")),
    (_WARMUP_KEYS, "TRAIN.LR_SCHEDULER.NAME", ("cosine", "constant", "step", "poly")),
)


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def find_unused(view: ConfigView[RunSettings]) -> Iterator[IgnoredKeys]:
    """Yield the keys that a run with these values ignores."""
    values, train = view.values, view.values.TRAIN
    for names, chooser, readers in _READ_BY:
        if get_value(values, chooser) not in readers:
            yield IgnoredKeys(names, chooser, f"it is for {_join(readers)}, and {{}}")
    if train.OPTIMIZER.NAME == "SGD" and not train.OPTIMIZER.MOMENTUM:
        reason = "it dampens the momentum of SGD, and {}"
        yield IgnoredKeys(("TRAIN.OPTIMIZER.DAMPENING",), "TRAIN.OPTIMIZER.MOMENTUM", reason)
    if not train.PATIENCE:
        yield IgnoredKeys(("TRAIN.MIN_IMPROVEMENT",), "TRAIN.PATIENCE", "it is for early stopping, and {}")
    if "TRAIN.NUM_SAMPLES" not in view:
        yield IgnoredKeys(
            ("TRAIN.EPOCH_LIMITS",), "TRAIN.NUM_SAMPLES", "it limits the epochs that NUM_SAMPLES gives, and {}"
        )
    if not (train.WARMUP_EPOCHS or train.WARMUP_STEPS):
        steps = "TRAIN.WARMUP_EPOCHS" if train.WARMUP_STEPS is None else "TRAIN.WARMUP_STEPS"
        names = ("TRAIN.WARMUP_START_LR", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM")
        yield IgnoredKeys(names, steps, "there is no warm-up: {}")
    if not train.LORA.RANK:
        reason = "it is for matrices of low rank, and {}"
        yield IgnoredKeys(("TRAIN.LORA.ALPHA", "TRAIN.LORA.TARGETS"), "TRAIN.LORA.RANK", reason)
    if not train.MODEL_EMA:
        names = ("TRAIN.MODEL_EMA_DECAY", "TRAIN.MODEL_EMA_WARMUP")
        yield IgnoredKeys(names, "TRAIN.MODEL_EMA", "it is for the averaged weights, and {}")
    if not (values.AMP or values.EVAL_AMP):
        yield IgnoredKeys(("AMP_DTYPE", "AMP_LEVEL"), "AMP", "it is for mixed precision, and {}")


TABLE = KeyTable(
    keys=tuple(_KEYS.values()),
    training=(
        *(name for name in _KEYS if name.startswith("TRAIN.") and name != "TRAIN.TF32"),
        *("MODEL.MIN_LOADED_FRACTION", "MODEL.PRETRAINED_REQUIRED", "DATA.GLOBAL_BATCH_SIZE"),
        *("SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND", "KEEP_EPOCHS", "KEEP_UPDATES"),
        "STOP_AFTER_SECONDS",
        *("VALIDATE_FREQ", "REPORT_FREQ", "LOG_TO"),
        "AMP",
    ),
    # Number of processes and batch size are "neutral": their product is compared as "effective batch". Keys from which
    # NUM_EPOCHS follows are "neutral", too: NUM_EPOCHS itself is compared.
    effects={
        "network": ("TASK",),
        "score": ("TRAIN.TF32",),
        "training": ("MODEL.TYPE", "MODEL.NUM_CLASSES", "SEED", "AMP", "AMP_DTYPE", "AMP_LEVEL"),
        "neutral": (
            *("DATA.BATCH_SIZE", "DATA.GLOBAL_BATCH_SIZE", "DATA.BATCH_SIZE_EVAL", "TRAIN.ACCUM_ITER"),
            *("TRAIN.NUM_SAMPLES", "TRAIN.EPOCH_LIMITS", "TRAIN.STOP_AFTER_EPOCH", "TRAIN.MAX_SKIPPED_UPDATES"),
            *("TRAIN.PATIENCE", "TRAIN.MIN_IMPROVEMENT"),
            *("TRAIN.BUCKET_MEGABYTES", "TRAIN.FIND_UNUSED_PARAMETERS", "TRAIN.RECOMPUTE", "TRAIN.SHARDING"),
            *("TRAIN.OPTIMIZER.FUSED", "SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND"),
            *("KEEP_EPOCHS", "KEEP_UPDATES", "STOP_AFTER_SECONDS", "VALIDATE_FREQ", "REPORT_FREQ", "DETERMINISTIC"),
            *("EVALUATION.", "SAVE_PREDICTIONS", "EVAL_AMP", "TO_STATIC"),
        ),
        "machine": (
            *("DATA.DATA_PATH", "DATA.NUM_WORKERS", "DATA.PREFETCH", "DATA.CACHE_FOLDER"),
            *("DATA.LOADER_TIMEOUT_SECONDS", "LOG_TO", "NGPUS", "DEVICE", "WATCHDOG_SECONDS", "CPU_TUNING"),
        ),
        "start": (
            *("DATA.SPLIT", "MODEL.PRETRAINED", "MODEL.PRETRAINED_REQUIRED", "MODEL.PRETRAINED_PART"),
            *("MODEL.MIN_LOADED_FRACTION", "MODEL.RESUME", "TRAIN.LAST_EPOCH", "EVAL", "ALLOW_CHANGES"),
        ),
        "place": ("BASE", "IMPORTS", "SAVE"),
    },
    resolve_defaults=_complete,
    check=check,
    find_ignored=find_unused,
    renamed_values={
        ("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine",
        ("TRAIN.OPTIMIZER.NAME", "adamwdl"): "AdamW",  # with TRAIN.LAYER_DECAY
    },
    ignored_keys={
        "TAG": "runs are distinguished by their output folder",
        "LOCAL_RANK": "each process knows its rank",
        "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights are on the device",
    },
)
