"""The rules of the keys that every run reads; the keys are in ``settings.every_run``."""

from collections.abc import Mapping, Sequence

from yacs.config import CfgNode

from ..checkpoint.published import published
from ..settings import run_length
from ..settings.every_run import RunSettings
from ..settings.key import COMMAND_LINE, Setting, Table
from ..settings.section import rows
from .settings_checks import check, unused

_KEYS = {row.name: row for row in rows(RunSettings)}


def _complete(values: CfgNode, settings: Mapping[str, Setting], all_settings: Sequence[Setting]) -> list[str]:
    _leave_out_start(values, settings)
    notices = run_length.settle(values, settings, all_settings)
    return notices + run_length.shorten_warmup(values, settings, all_settings, _KEYS["TRAIN.NUM_EPOCHS"])


def _leave_out_start(values: CfgNode, settings: Mapping[str, Setting]) -> None:
    """An evaluation looks at a run, not at what its recipe starts from."""
    model, given = values.MODEL, settings.get("MODEL.PRETRAINED")
    is_of_recipe = model.PRETRAINED_REQUIRED and given is not None and given.source != COMMAND_LINE
    if values.EVAL and is_of_recipe and published(model.PRETRAINED) is not None:
        model.PRETRAINED = None


TABLE = Table(
    keys=tuple(_KEYS.values()),
    training=(
        *(name for name in _KEYS if name.startswith("TRAIN.") and name != "TRAIN.TF32"),
        *("MODEL.MINIMUM_LOADED", "MODEL.PRETRAINED_REQUIRED", "DATA.GLOBAL_BATCH_SIZE"),
        *("SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND", "KEEP_EPOCHS", "KEEP_UPDATES"),
        "STOP_AFTER_SECONDS",
        *("VALIDATE_FREQ", "REPORT_FREQ", "LOG_TO"),
        "AMP",
    ),
    # Processes and batches change no number: they count by their product, which is compared as "effective batch"; and
    # what follows from the size of the training set counts by what followed, NUM_EPOCHS.
    effects={
        "network": ("TASK",),
        "score": ("TRAIN.TF32",),
        "training": ("MODEL.TYPE", "MODEL.NUM_CLASSES", "SEED", "AMP", "AMP_DTYPE", "AMP_LEVEL"),
        "neutral": (
            *("DATA.BATCH_SIZE", "DATA.GLOBAL_BATCH_SIZE", "DATA.BATCH_SIZE_EVAL", "TRAIN.ACCUM_ITER"),
            *("TRAIN.NUM_SAMPLES", "TRAIN.EPOCH_LIMITS", "TRAIN.STOP_AFTER_EPOCH", "TRAIN.MAX_SKIPPED_UPDATES"),
            *("TRAIN.PATIENCE", "TRAIN.MIN_IMPROVEMENT"),
            *("TRAIN.BUCKET_MEGABYTES", "TRAIN.FIND_UNUSED_PARAMETERS", "TRAIN.RECOMPUTE"),
            *("TRAIN.OPTIMIZER.FUSED", "SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND"),
            *("KEEP_EPOCHS", "KEEP_UPDATES", "STOP_AFTER_SECONDS", "VALIDATE_FREQ", "REPORT_FREQ", "DETERMINISTIC"),
            *("EVALUATION.", "SAVE_PREDICTIONS", "EVAL_AMP", "TO_STATIC"),
        ),
        "machine": (
            *("DATA.DATA_PATH", "DATA.NUM_WORKERS", "DATA.PREFETCH", "DATA.CACHE_FOLDER"),
            *("DATA.LOADER_TIMEOUT_SECONDS", "LOG_TO", "NGPUS", "WATCHDOG_SECONDS", "CPU_TUNING"),
        ),
        "start": (
            *("DATA.SPLIT", "MODEL.PRETRAINED", "MODEL.PRETRAINED_REQUIRED", "MODEL.PRETRAINED_PART"),
            *("MODEL.MINIMUM_LOADED", "MODEL.RESUME", "TRAIN.LAST_EPOCH", "EVAL", "ALLOW_CHANGES"),
        ),
        "place": ("BASE", "IMPORTS", "SAVE"),
    },
    complete=_complete,
    check=check,
    unused=unused,
    renamed_values={
        ("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine",
        ("TO_STATIC", "auto"): False,  # a trial, which is gone
    },
    gone={
        "TRAIN.LR_SCHEDULER.PCT_START": (0.3, "it is 0.3; leave it out"),
        "TRAIN.LR_SCHEDULER.DIV_FACTOR": (25.0, "it is 25; leave it out"),
        "TRAIN.LR_SCHEDULER.FINAL_DIV_FACTOR": (1e4, "it is 10000; leave it out"),
    },
    dropped={
        "TRAIN.EMPTY_CACHE_FREQ": "point clouds empty a GPU's cache after each tenth update",
        "TAG": "runs are told apart by their output folder",
        "LOCAL_RANK": "each process knows its rank",
        "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights live on the device",
    },
)
