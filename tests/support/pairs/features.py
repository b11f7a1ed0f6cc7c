"""What a training run can be told: features, their values, and the words of ``train`` that set each value.

The first value of a feature is its default. A new feature of the product gets a row here. A value may name its twin:
the value with which the same run must end with the same weights, averages and statistics.
"""

from pathlib import Path
from typing import NamedTuple

Combination = dict[str, str]  # feature -> value
Rule = dict[str, tuple[str, ...]]  # matches a combination that has one of the values for each of its features


class Value(NamedTuple):
    """One value of a feature.

    Attributes:
        words: what sets it; "{work}" and "{address}" stand for the folder of the data and the server of that folder.
        twin: another value of the feature that must give the same result; empty if none does.
        agreement: how equal: "bits", "near" (1e-3 of what training changed) or "rounding" (5e-3 of it).
    """

    words: str = ""
    twin: str = ""
    agreement: str = "bits"


Features = dict[str, dict[str, Value]]


class Model(NamedTuple):
    """A network with its recipe.

    Attributes:
        has_batch_norm: its statistics depend on how a batch is split, unless they are synchronized.
        draws: its losses draw random numbers per rank, so that a split changes them.
        has_blocks: its blocks are numbered, as LAYER_DECAY, Muon and LoRA need.
        start: what else the run sets that trains the first weights, so that scores are not all zero.
    """

    words: str
    has_batch_norm: bool = False
    draws: bool = False
    has_blocks: bool = False
    start: str = "-epochs=1"


class Task(NamedTuple):
    """A kind of work with its networks and the features that only it has; ``batch``: samples of an update."""

    batch: int
    models: dict[str, Model]
    features: Features


NONE = {"none": Value()}
_OPTIMIZER = "TRAIN.OPTIMIZER.NAME"
_SMOOTH = "TRAIN.OPTIMIZER.EPS 1e-3"  # rounding of a tiny gradient stays rounding
_AVERAGE = "TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY"

COMMON: Features = {
    "processes": {"1": Value("-ngpus=1"), "2": Value("-ngpus=2", "1", "rounding")},
    "accumulation": {"1": Value(), "2": Value("-accum_iter=2", "1", "rounding")},
    "batch_norm": {
        "default": Value(),
        "sync": Value("TRAIN.BATCH_NORM sync"),
        "local": Value("TRAIN.BATCH_NORM local"),
    },
    "average": NONE | {"half": Value(f"{_AVERAGE} 0.5"), "warmup": Value(f"{_AVERAGE} 0.9 TRAIN.MODEL_EMA_WARMUP 3")},
    "sharding": NONE | {"optimizer": Value("TRAIN.SHARDING optimizer", "none", "near")},
    "optimizer": {
        "AdamW": Value(f"{_OPTIMIZER} AdamW {_SMOOTH}"),
        "Adam": Value(f"{_OPTIMIZER} Adam {_SMOOTH}"),
        "SGD": Value(f"{_OPTIMIZER} SGD TRAIN.OPTIMIZER.NESTEROV True"),
        "Lion": Value(f"{_OPTIMIZER} Lion TRAIN.BASE_LR 1e-4"),
        "Muon": Value(f"{_OPTIMIZER} Muon {_SMOOTH}"),
        "LAMB": Value(f"{_OPTIMIZER} LAMB {_SMOOTH}"),
    },
    "repeats": {"1": Value(), "2": Value("TRAIN.REPEATED_AUGMENT 2")},
    "freeze": NONE | {"part": Value("TRAIN.FREEZE [*.0.*]")},
    "layer_decay": NONE | {"0.7": Value("TRAIN.LAYER_DECAY 0.7")},
    "clip": NONE | {"0.1": Value("TRAIN.GRAD_CLIP 0.1")},
    "workers": {"0": Value("DATA.NUM_WORKERS 0"), "1": Value("DATA.NUM_WORKERS 1", "0")},
    "compile": NONE
    | {
        "recompute": Value("TRAIN.RECOMPUTE True", "none", "rounding"),
        "static": Value("TO_STATIC True", "none", "rounding"),
    },
    "save": {
        "epoch": Value(),
        "update": Value("SAVE_EVERY_UPDATES 1", "epoch"),
        "foreground": Value("SAVE_IN_BACKGROUND False", "epoch"),
    },
    "interruption": {"stop": Value(), "term": Value(), "kill": Value()},
    "exchange": {
        "25": Value(),
        "1": Value("TRAIN.BUCKET_MEGABYTES 1", "25", "rounding"),
        "unused": Value("TRAIN.FIND_UNUSED_PARAMETERS True", "25"),
    },
    "schedule": {
        "cosine": Value("TRAIN.LR_SCHEDULER.NAME cosine"),
        "onecycle": Value("TRAIN.LR_SCHEDULER.NAME onecycle"),
        "warmup": Value("TRAIN.LR_SCHEDULER.NAME cosine TRAIN.WARMUP_STEPS 3"),
    },
    "evaluation": {
        "all": Value(),
        "batch3": Value("DATA.BATCH_SIZE_EVAL 3", "all"),
        "patience": Value("TRAIN.PATIENCE 1"),
    },
}

_DISTILLATION = "TRAIN.TEACHER_MODEL resnet18 TRAIN.TEACHER_WEIGHTS {base:resnet18} TRAIN.DISTILLATION_TYPE"
_CLASSIFICATION: Features = {
    "data": {
        "folder": Value("-dataset=folder -data_path={work}/folder"),
        "pages": Value("-dataset=tar -data_path={work}/pages"),
        "jpeg": Value("-dataset=tar -data_path={work}/jpeg"),
        "http": Value("-dataset=tar -data_path={address}pages", "pages"),
    },
    "lora": NONE | {"rank2": Value("TRAIN.LORA.RANK 2"), "mlp": Value("TRAIN.LORA.RANK 2 TRAIN.LORA.TARGETS [mlp]")},
    "mix": NONE
    | {
        "mixup": Value("TRAIN.MIXUP_ALPHA 0.8"),
        "both": Value("TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.MIXUP_MODE elem"),
    },
    "smoothing": NONE | {"0.1": Value("TRAIN.SMOOTHING 0.1")},
    "teacher": NONE | {kind: Value(f"{_DISTILLATION} {kind}") for kind in ("soft", "hard")},
    "classes": NONE | {"weights": Value("TRAIN.CLASS_WEIGHTS balanced"), "sampling": Value("DATA.CLASS_BALANCED True")},
    "dropout": NONE | {"path": Value("MODEL.DROPPATH 0.2"), "dense": Value("MODEL.DROPOUT 0.2")},
    "augment": NONE
    | {
        "rand": Value("TRAIN.RAND_AUGMENT True TRAIN.RANDOM_ERASE_PROB 0.5"),
        "color": Value("TRAIN.COLOR_JITTER 0.4 DATA.DECODER fast"),
    },
    "input": {
        "color": Value("DATA.IMAGE_CHANNELS 3"),
        "squash": Value("DATA.IMAGE_CHANNELS 3 DATA.CROP_MODE squash DATA.INTERPOLATION bilinear"),
        "crop": Value("DATA.IMAGE_CHANNELS 3 DATA.CROP_PCT 0.7"),
    },
}
_DETECTION: Features = {
    "crops": NONE
    | {
        "crop": Value(
            "DATA.CROP_PROBABILITY 1.0 DATA.CROP_SHORTEST_SIDES [40] DATA.CROP_SIDES [24,40] DATA.RESIZE_TO_SQUARE True"
        ),
        "ssd": Value("DATA.SSD_AUGMENT True DATA.RESIZE_TO_SQUARE True"),
        "mosaic": Value("DATA.MOSAIC 0.7"),
        "quiet": Value("DATA.MOSAIC 0.7 DATA.NO_AUGMENT_EPOCHS 1"),
        "paste": Value("DATA.COPY_PASTE 0.7"),
    },
    "windows": NONE
    | {"windows": Value("DETECTION.WINDOW [40,40]", "none"), "flip": Value("DETECTION.FLIP True", "none")},
    "shapes": NONE | {"grouped": Value("DATA.GROUP_BY_SHAPE 32")},
}
_SEGMENTATION: Features = {
    "windows": NONE
    | {
        "windows": Value("SEGMENTATION.PROTOCOL slide SEGMENTATION.CROP [48,48]", "none"),
        "flip": Value("SEGMENTATION.FLIP True", "none"),
    },
    "loss": NONE | {"dice": Value("SEGMENTATION.DICE_WEIGHT 1.0"), "ohem": Value("SEGMENTATION.OHEM_THRESHOLD 0.9")},
    "dropout": NONE | {"dense": Value("MODEL.DROPOUT 0.1")},
    "photometric": NONE | {"yes": Value("DATA.PHOTOMETRIC True")},
}
_POINTS: Features = {}
_VOLUMES: Features = {
    "noise": NONE | {"yes": Value("VOLUMES.NOISE 0.5 VOLUMES.BLUR 0.5 VOLUMES.GAMMA 0.5")},
    "geometry": NONE | {"yes": Value("VOLUMES.ROTATION_DEGREES 10 VOLUMES.SCALE 0.1")},
}

_IMAGE = "-cfg=vit_digits DATA.IMAGE_SIZE 32 TRAIN.SMOOTHING 0.0 TRAIN.WARMUP_EPOCHS 0"
_VIT = "MODEL.EMBED_DIM 24 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8 MODEL.MLP_RATIO 2.0"
_DRAWN = "DATA.SHAPES.TRAIN 40 DATA.SHAPES.VAL 7"
_LONGER = "DATA.SHAPES.TRAIN 480 -epochs=6 VALIDATE_FREQ 6"
_FEW = f"-import={Path(__file__).with_name('few_volumes.py')} VOLUMES.UNET_WIDTH 4 VOLUMES.UNET_DEPTH 2"
_ROOMS = "POINTS.ROOMS.TRAIN 16 POINTS.ROOMS.VAL 3 DATA.VOXEL_SIZE_M 0.3"

TASKS = {
    "classification": Task(
        16,
        {
            "vit": Model(f"{_IMAGE} {_VIT}", has_blocks=True),
            "timm:test_vit": Model(f"{_IMAGE} MODEL.NAME timm:test_vit", has_blocks=True),
        }
        | {
            name: Model(f"{_IMAGE} MODEL.NAME {name}", has_batch_norm=True)
            for name in ("timm:test_resnet", "timm:test_efficientnet", "resnet18")
        },
        _CLASSIFICATION,
    ),
    "detection": Task(
        8,
        {
            name: Model(f"-cfg={name}_shapes {_DRAWN}", has_batch_norm=True, draws=True, start=_LONGER)
            for name in ("dfine", "rtdetr", "mask_rcnn")
        },
        _DETECTION,
    ),
    "segmentation": Task(
        8,
        {"segformer": Model(f"-cfg=segformer_b0_shapes {_DRAWN} MODEL.DROPOUT 0.0", has_batch_norm=True, draws=True)},
        _SEGMENTATION,
    ),
    "points": Task(
        4,
        {
            # The Lovasz loss sorts the points of each rank.
            "rooms": Model(f"-cfg=minkunet14_synthetic_rooms {_ROOMS} POINTS.LOVASZ_WEIGHT 0.0", has_batch_norm=True),
            "instances": Model(
                f"-cfg=pointgroup_synthetic_rooms {_ROOMS} POINTS.INSTANCES.WIDTH 8 POINTS.INSTANCES.PREPARE_EPOCHS 1"
                " POINTS.INSTANCES.RADIUS_M 0.6",
                has_batch_norm=True,
                draws=True,
            ),
            "solids": Model(
                "-cfg=mink_classifier_solids SHAPES.SOLIDS.TRAIN 32 SHAPES.SOLIDS.VAL 11 SHAPES.POINTS 256",
                has_batch_norm=True,
            ),
        },
        _POINTS,
    ),
    "volumes": Task(
        4,
        {
            "organs": Model(f"-cfg=volume_unet3d_phantoms -dataset=few_organs {_FEW}"),
            "heads": Model(f"-cfg=landmark_unet3d -dataset=few_heads {_FEW}", has_batch_norm=True),
        },
        _VOLUMES,
    ),
}
_MODELS = {name: model for task in TASKS.values() for name, model in task.models.items()}
_NORMED = tuple(name for name, model in _MODELS.items() if model.has_batch_norm)
_WITHOUT_BLOCKS = tuple(name for name, model in _MODELS.items() if not model.has_blocks)
_NOT_IMAGES = tuple(name for task in ("detection", "segmentation", "points", "volumes") for name in TASKS[task].models)
# Recomputed layers have batch norms, or the task has none.
_NOT_RECOMPUTED = ("timm:test_resnet", "timm:test_efficientnet", "resnet18", *TASKS["points"].models)
_NOT_RECOMPUTED += ("mask_rcnn", *TASKS["volumes"].models)

# Combinations that the guides exclude: exit code 2 and one line, before anything is trained.
REFUSED: list[Rule] = [
    {"lora": ("rank2", "mlp"), "compile": ("static",)},
    {"lora": ("rank2", "mlp"), "model": _WITHOUT_BLOCKS},
    {"compile": ("recompute",), "model": _NOT_RECOMPUTED},
    {"compile": ("static",), "model": _NOT_IMAGES},
    {"compile": ("static",), "processes": ("2",), "batch_norm": ("sync",), "model": _NORMED},
]
# Of these networks some have numbered blocks and others do not: both answers are right.
MAY_BE_REFUSED: list[Rule] = [
    {"layer_decay": ("0.7",), "model": _WITHOUT_BLOCKS},
    {"optimizer": ("Muon",), "model": _WITHOUT_BLOCKS},
]


def list_features(task: str) -> Features:
    """List all features of a task with their values; the networks are the first."""
    models = {name: Value(model.words) for name, model in TASKS[task].models.items()}
    return {"model": models, **COMMON, **TASKS[task].features}


def matches(combination: Combination, rules: list[Rule]) -> bool:
    return any(all(combination.get(name) in values for name, values in rule.items()) for rule in rules)
