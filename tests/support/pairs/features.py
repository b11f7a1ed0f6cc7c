"""What a training run can be told: features, their values, and the words of ``train`` that set each value.

The first value of a feature is its default. A new feature of the product gets a row here, or in ``image_features`` and
``other_features`` if one task has it. A value may name its twin: the value with which the same run must end with the
same weights, averages and statistics.
"""

from .image_features import CLASSIFICATION, DETECTION, MULTI_LABEL, PANOPTIC, SEGMENTATION
from .keypoint_features import KEYPOINT_DETECTION, KEYPOINT_HEATMAPS
from .other_features import INSTANCES, LANDMARKS, ORGANS, OUTSIDE, SCENES, SHAPES
from .pretraining_features import MASKED_AUTOENCODER, SELF_DISTILLATION
from .values import NONE, Features, Rule, Task, Value

_OPTIMIZER = "TRAIN.OPTIMIZER.NAME"
_SCHEDULE = "TRAIN.LR_SCHEDULER.NAME"
_SMOOTH = "TRAIN.OPTIMIZER.EPS 1e-3"  # rounding of a tiny gradient stays rounding
_AVERAGE = "TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY"

COMMON: Features = {
    "processes": {"1": Value("-ngpus=1"), "2": Value("-ngpus=2", "1", "rounding")},
    "accumulation": {"1": Value(), "2": Value("-accum_iter=2", "1", "rounding")},
    "batch_norm": {
        "default": Value(),
        "sync": Value("TRAIN.BATCH_NORM sync"),
        "local": Value("TRAIN.BATCH_NORM local"),
        "quick": Value("TRAIN.BATCH_NORM_MOMENTUM 0.5"),
    },
    "average": NONE | {"half": Value(f"{_AVERAGE} 0.5"), "warmup": Value(f"{_AVERAGE} 0.9 TRAIN.MODEL_EMA_WARMUP 3")},
    "sharding": NONE | {"optimizer": Value("TRAIN.SHARDING optimizer", "none", "near")},
    "optimizer": {
        "AdamW": Value(f"{_OPTIMIZER} AdamW {_SMOOTH}"),
        "Adam": Value(f"{_OPTIMIZER} Adam {_SMOOTH} TRAIN.OPTIMIZER.BETAS [0.8,0.99] TRAIN.WEIGHT_DECAY 0.1"),
        "SGD": Value(f"{_OPTIMIZER} SGD TRAIN.OPTIMIZER.NESTEROV True"),
        "damped": Value(f"{_OPTIMIZER} SGD TRAIN.OPTIMIZER.MOMENTUM 0.7 TRAIN.OPTIMIZER.DAMPENING 0.3"),
        "Lion": Value(f"{_OPTIMIZER} Lion TRAIN.BASE_LR 1e-4"),
        "Muon": Value(f"{_OPTIMIZER} Muon {_SMOOTH}"),
        "LAMB": Value(f"{_OPTIMIZER} LAMB {_SMOOTH}"),
    },
    "decay": NONE | {"rising": Value("TRAIN.WEIGHT_DECAY 0.1 TRAIN.WEIGHT_DECAY_END 0.5")},
    "seed": {"0": Value(), "5": Value("SEED 5")},
    "repeats": {"1": Value(), "2": Value("TRAIN.REPEATED_AUGMENT 2")},
    "freeze": NONE | {"part": Value("TRAIN.FREEZE [*.0.*]")},
    "layer_decay": NONE | {"0.7": Value("TRAIN.LAYER_DECAY 0.7")},
    "clip": NONE
    | {"0.1": Value("TRAIN.GRAD_CLIP 0.1"), "tensor": Value("TRAIN.GRAD_CLIP 0.1 TRAIN.GRAD_CLIP_MODE tensor")},
    "workers": {
        "0": Value("DATA.NUM_WORKERS 0"),
        "1": Value("DATA.NUM_WORKERS 1", "0"),
        "eager": Value("DATA.NUM_WORKERS 2 DATA.PREFETCH 1 DATA.LOADER_TIMEOUT_SECONDS 300", "0"),
    },
    "compile": NONE
    | {
        "recompute": Value("TRAIN.RECOMPUTE True", "none", "rounding"),
        "static": Value("TO_STATIC True", "none", "rounding"),
        "captured": Value("TRAIN.CAPTURE True"),
    },
    "save": {
        "epoch": Value(),
        "update": Value("SAVE_EVERY_UPDATES 1 KEEP_UPDATES 99 KEEP_EPOCHS 9 TRAIN.MAX_SKIPPED_UPDATES 2", "epoch"),
        "foreground": Value("SAVE_IN_BACKGROUND False SAVE_FREQ 1 SAVE_EVERY_MINUTES 0", "epoch"),
    },
    "interruption": {"stop": Value(), "term": Value(), "kill": Value()},
    "exchange": {
        "25": Value(),
        "1": Value("TRAIN.BUCKET_MEGABYTES 1", "25", "rounding"),
        "unused": Value("TRAIN.FIND_UNUSED_PARAMETERS True", "25"),
    },
    "schedule": {
        "cosine": Value(f"{_SCHEDULE} cosine TRAIN.END_LR 1e-5"),
        "onecycle": Value(f"{_SCHEDULE} onecycle"),
        "warmup": Value(f"{_SCHEDULE} cosine TRAIN.WARMUP_STEPS 3 TRAIN.WARMUP_START_LR 1e-5"),
        "step": Value(f"{_SCHEDULE} step TRAIN.LR_SCHEDULER.MILESTONES [1] TRAIN.LR_SCHEDULER.GAMMA 0.3"),
        "scaled": Value(f"{_SCHEDULE} constant TRAIN.LINEAR_SCALED_LR 32"),
        "poly": Value(f"{_SCHEDULE} poly TRAIN.LR_SCHEDULER.POWER 0.7"),
    },
    "evaluation": {
        "single": Value("DATA.BATCH_SIZE_EVAL 1"),  # so that processes do not read all samples of one before the next's
        "batch3": Value("DATA.BATCH_SIZE_EVAL 3", "single"),
        "whole": Value("", "single"),
        "patience": Value("TRAIN.PATIENCE 1 TRAIN.MIN_IMPROVEMENT 0.1"),
        "end": Value("VALIDATE_FREQ 2", "single"),
    },
    "interval": {
        "95": Value("EVALUATION.RESAMPLES 150"),
        "99": Value("EVALUATION.RESAMPLES 100 EVALUATION.INTERVAL 99", "95"),
        "off": Value("EVALUATION.INTERVAL off", "95"),
    },
    "told": {
        "little": Value("REPORT False"),
        "report": Value("REPORT True REPORT_FREQ 1", "little"),
        "loggers": Value("REPORT False LOG_TO [tensorboard]", "little"),
    },
    "runtime": {name: Value() for name in ("onnxruntime", "openvino")},  # of an exported ONNX file
    "command": {name: Value() for name in ("none", "report", "convert", "selftest", "compare", "search")},
}
TASKS: dict[str, Task] = {
    "classification": CLASSIFICATION,
    "multi_label": MULTI_LABEL,
    "masked_autoencoder": MASKED_AUTOENCODER,
    "self_distillation": SELF_DISTILLATION,
    "detection": DETECTION,
    "keypoint_detection": KEYPOINT_DETECTION,
    "keypoint_heatmaps": KEYPOINT_HEATMAPS,
    "segmentation": SEGMENTATION,
    "panoptic": PANOPTIC,
    "scenes": SCENES,
    "instances": INSTANCES,
    "shapes": SHAPES,
    "organs": ORGANS,
    "landmarks": LANDMARKS,
    "outside": OUTSIDE,
}
_MODELS = {name: model for task in TASKS.values() for name, model in task.models.items()}
_NORMED = tuple(name for name, model in _MODELS.items() if model.has_batch_norm)
_WITHOUT_BLOCKS = tuple(name for name, model in _MODELS.items() if not model.has_blocks)
_STATIC = ("classification", "multi_label")
_NOT_STATIC = tuple(name for task in TASKS if task not in _STATIC for name in TASKS[task].models)
# Recomputed layers have batch norms, or the task has none.
_NOT_RECOMPUTED = ("timm:test_resnet", "timm:test_efficientnet", "resnet18", "mask_rcnn", "heatmap_cnn")
_NOT_RECOMPUTED += tuple(
    name for task in ("scenes", "instances", "shapes", "organs", "landmarks", "outside") for name in TASKS[task].models
)

_REFUSED: tuple[Rule, ...] = (
    {"lora": ("rank2", "mlp"), "compile": ("static",)},
    {"lora": ("rank2", "mlp"), "model": _WITHOUT_BLOCKS},
    {"compile": ("recompute",), "model": _NOT_RECOMPUTED},
    {"compile": ("static",), "model": _NOT_STATIC},
    {"compile": ("static",), "processes": ("2",), "batch_norm": ("sync",), "model": _NORMED},
)
# Of these networks some have numbered blocks and others do not.
_MAY_BE_REFUSED: tuple[Rule, ...] = (
    {"layer_decay": ("0.7",), "model": _WITHOUT_BLOCKS},
    {"optimizer": ("Muon",), "model": _WITHOUT_BLOCKS},
    {"batch_norm": ("quick",), "model": tuple(name for name in _MODELS if name not in _NORMED)},
)


def list_features(task: str) -> Features:
    """List all features of a task with their values; the networks are the first."""
    models = {name: Value(model.words) for name, model in TASKS[task].models.items()}
    own = TASKS[task].features
    return {"model": models} | {name: COMMON.get(name, {}) | own.get(name, {}) for name in COMMON | own}


def list_refused(task: str) -> tuple[Rule, ...]:
    """List what a run refuses: with exit code 2 and one line, before anything is trained."""
    return _REFUSED + TASKS[task].refused


def list_may_be_refused(task: str) -> tuple[Rule, ...]:
    """List what some networks refuse and others do not."""
    return _MAY_BE_REFUSED + TASKS[task].may_be_refused


def list_avoided(task: str) -> tuple[Rule, ...]:
    """List what is rarely drawn, since nothing may be trained."""
    return list_refused(task) + list_may_be_refused(task)
