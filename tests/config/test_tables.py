"""The key tables, which task reads which, and what values each key accepts."""

from __future__ import annotations

import pytest

from paddlevit_dist.config import default_config, load
from paddlevit_dist.config.key import Mismatch
from paddlevit_dist.config.table import keys, leaves
from paddlevit_dist.registry import TABLES, key_tables

PROMISED = {
    "BASE": [],
    "IMPORTS": [],
    "DATA.BATCH_SIZE": 256,
    "DATA.BATCH_SIZE_EVAL": None,
    "DATA.DATASET": "digits",
    "DATA.DATA_PATH": None,
    "DATA.SPLIT": "val",
    "DATA.IMAGE_SIZE": 224,
    "DATA.IMAGE_CHANNELS": 3,
    "DATA.CROP_PCT": 0.875,
    "DATA.NUM_WORKERS": None,
    "DATA.PREFETCH": 2,
    "DATA.IMAGENET_MEAN": [0.5, 0.5, 0.5],
    "DATA.IMAGENET_STD": [0.5, 0.5, 0.5],
    "DATA.CROP_SCALE": [0.08, 1.0],
    "DATA.CROP_RATIO": [0.75, 1.3333333333333333],
    "DATA.DECODER": "exact",
    "DATA.HORIZONTAL_FLIP": 0.5,
    "DATA.GLYPH_DISTORTION": 1.0,
    "DATA.CACHE_FOLDER": None,
    "DATA.VAL_FRACTION": None,
    "DATA.VAL_SEED": 0,
    "DATA.CLASS_BALANCED": False,
    "DATA.ON_BAD_SAMPLE": "stop",
    "DATA.ALLOW_LEFT_OUT": False,
    "DATA.EXIF_ROTATE": False,
    "DATA.MAX_PIXELS": 89_478_485,
    "DATA.LOADER_TIMEOUT_SECONDS": 600,
    "MODEL.TYPE": "vit",
    "MODEL.NAME": "vit",
    "MODEL.NUM_CLASSES": None,
    "MODEL.PRETRAINED": None,
    "MODEL.PRETRAINED_PART": None,
    "MODEL.MINIMUM_LOADED": 0.9,
    "MODEL.RESUME": None,
    "MODEL.DROPOUT": 0.0,
    "MODEL.ATTENTION_DROPOUT": 0.0,
    "MODEL.DROPPATH": 0.0,
    "MODEL.PATCH_SIZE": None,
    "MODEL.EMBED_DIM": None,
    "MODEL.NUM_HEADS": None,
    "MODEL.ATTN_HEAD_SIZE": None,
    "MODEL.DEPTH": None,
    "MODEL.MLP_RATIO": None,
    "MODEL.DEPTHS": None,
    "MODEL.DIMS": None,
    "MODEL.WINDOW_SIZE": None,
    "MODEL.SR_RATIO": None,
    "MODEL.DEPTH_TOKEN_ONLY": None,
    "MODEL.INIT_VALUES": None,
    "MODEL.LINEAR": None,
    "MODEL.QKV_BIAS": None,
    "TASK": "classification",
    "TRAIN.LAST_EPOCH": 0,
    "TRAIN.NUM_EPOCHS": 300,
    "TRAIN.STOP_AFTER_EPOCH": None,
    "TRAIN.WARMUP_EPOCHS": 0,
    "TRAIN.WARMUP_STEPS": None,
    "TRAIN.WEIGHT_DECAY": 0.05,
    "TRAIN.BASE_LR": 1e-3,
    "TRAIN.WARMUP_START_LR": 1e-6,
    "TRAIN.END_LR": 0.0,
    "TRAIN.GRAD_CLIP": None,
    "TRAIN.MAX_SKIPPED_UPDATES": 5,
    "TRAIN.ACCUM_ITER": 1,
    "TRAIN.BATCH_NORM": None,
    "TRAIN.BATCH_NORM_MOMENTUM": None,
    "TRAIN.BUCKET_MEGABYTES": 25,
    "TRAIN.FIND_UNUSED_PARAMETERS": False,
    "TRAIN.EMPTY_CACHE_FREQ": None,
    "TRAIN.TF32": True,
    "TRAIN.LINEAR_SCALED_LR": None,
    "TRAIN.SMOOTHING": 0.0,
    "TRAIN.CLASS_WEIGHTS": None,
    "TRAIN.DISTILLATION_TYPE": "none",
    "TRAIN.DISTILLATION_ALPHA": 0.5,
    "TRAIN.DISTILLATION_TAU": 1.0,
    "TRAIN.TEACHER_MODEL": None,
    "TRAIN.TEACHER_WEIGHTS": None,
    "TRAIN.MODEL_EMA": False,
    "TRAIN.MODEL_EMA_DECAY": 0.99996,
    "TRAIN.LAYER_DECAY": None,
    "TRAIN.NUM_SAMPLES": None,
    "TRAIN.EPOCH_LIMITS": (10, 100),
    "DATA.GLOBAL_BATCH_SIZE": None,
    "DATA.VAL_FRACTION_IF_MISSING": None,
    "MODEL.PRETRAINED_REQUIRED": False,
    "TRAIN.FREEZE": [],
    "TRAIN.RECOMPUTE": False,
    "TRAIN.REPEATED_AUGMENT": 1,
    "TRAIN.RAND_AUGMENT": False,
    "TRAIN.RAND_AUGMENT_LAYERS": 2,
    "TRAIN.RAND_AUGMENT_MAGNITUDE": 9,
    "TRAIN.AUTO_AUGMENT": False,
    "TRAIN.COLOR_JITTER": 0.0,
    "TRAIN.GRAYSCALE_PROB": 0.0,
    "TRAIN.GAUSSIAN_BLUR_PROB": 0.0,
    "TRAIN.SOLARIZE_PROB": 0.0,
    "TRAIN.RANDOM_ERASE_PROB": 0.0,
    "TRAIN.RANDOM_ERASE_MODE": "pixel",
    "TRAIN.RANDOM_ERASE_COUNT": 1,
    "TRAIN.MIXUP_ALPHA": 0.0,
    "TRAIN.CUTMIX_ALPHA": 0.0,
    "TRAIN.CUTMIX_MINMAX": None,
    "TRAIN.MIXUP_PROB": 1.0,
    "TRAIN.MIXUP_SWITCH_PROB": 0.5,
    "TRAIN.MIXUP_MODE": "batch",
    "TRAIN.LR_SCHEDULER.NAME": "cosine",
    "TRAIN.LR_SCHEDULER.MILESTONES": [],
    "TRAIN.LR_SCHEDULER.GAMMA": 0.1,
    "TRAIN.LR_SCHEDULER.POWER": 0.9,
    "TRAIN.OPTIMIZER.NAME": "AdamW",
    "TRAIN.OPTIMIZER.EPS": 1e-8,
    "TRAIN.OPTIMIZER.BETAS": (0.9, 0.999),
    "TRAIN.OPTIMIZER.MOMENTUM": 0.9,
    "TRAIN.OPTIMIZER.DAMPENING": 0.0,
    "TRAIN.OPTIMIZER.FUSED": True,
    "SAVE": "./output",
    "SAVE_FREQ": 10,
    "SAVE_EVERY_UPDATES": 0,
    "SAVE_EVERY_MINUTES": 30.0,
    "SAVE_IN_BACKGROUND": True,
    "KEEP_EPOCHS": 1,
    "KEEP_UPDATES": 2,
    "STOP_AFTER_SECONDS": None,
    "VALIDATE_FREQ": 1,
    "REPORT_FREQ": 20,
    "LOG_TO": [],
    "WATCHDOG_SECONDS": 300,
    "SEED": 0,
    "EVAL": False,
    "PROFILE": None,
    "REPLAY": None,
    "SELFTEST": False,
    "REPORT": True,
    "SAVE_PREDICTIONS": False,
    "ALLOW_CHANGES": False,
    "AMP": False,
    "AMP_DTYPE": "float16",
    "AMP_LEVEL": "O1",
    "DETERMINISTIC": False,
    "EVAL_AMP": False,
    "TO_STATIC": False,
    "NGPUS": -1,
    "CPU_TUNING": True,
}


def classification_keys(config) -> dict:
    return {name: value for name, value in leaves(config) if name in keys("classification")}


def test_defaults_are_the_promised_ones():
    assert classification_keys(default_config()) == PROMISED


def test_the_tree_has_the_keys_of_all_tasks_each_from_one_table():
    names = [key.name for table in key_tables() for key in table.keys]

    assert sorted(names) == sorted(dict(leaves(default_config()))) and len(names) == len(set(names))
    assert {name for task in TABLES for name in keys(task)} == set(names)


@pytest.mark.parametrize(
    "name, tasks",
    [
        ("TRAIN.SMOOTHING", {"classification"}),
        ("DATA.IMAGE_SIZE", {"classification"}),
        ("MODEL.DROPPATH", {"classification", "detection"}),
        ("DETECTION.EVALUATE_AS", {"detection"}),
        ("DATA.VOXEL_SIZE_M", {"semantic_segmentation", "pointgroup"}),
        ("POINTS.ROOMS.TRAIN", {"semantic_segmentation", "pointgroup"}),
        ("POINTS.AUGMENT.FLIP", {"semantic_segmentation"}),
        ("POINTS.INSTANCES.FLIP", {"pointgroup"}),
        ("VOLUMES.FLIP", {"landmarks"}),
        ("TRAIN.BASE_LR", set(TABLES)),
        ("DATA.DATA_PATH", set(TABLES)),
        ("MODEL.NUM_CLASSES", set(TABLES)),
    ],
)
def test_who_reads_a_key(name, tasks):
    assert {task for task in TABLES if name in keys(task)} == tasks


def test_without_arguments_everything_is_at_its_default():
    configuration = load([])

    assert classification_keys(configuration.values) == PROMISED
    assert set(configuration.sources.values()) == {"default"}
    assert configuration.notices == [] and configuration.show is False and configuration.argv == []


@pytest.mark.parametrize("key", keys().values(), ids=list(keys()))
def test_each_default_is_a_value_its_key_may_hold(key):
    parsed = key.parse(key.default)

    assert parsed == key.default and type(parsed) is type(key.default)
    assert key.meaning and "\n" not in key.meaning


@pytest.mark.parametrize("key", keys().values(), ids=list(keys()))
def test_only_optional_keys_take_none(key):
    if key.optional:
        assert [key.parse(word) for word in (None, "None", "none", "null", "~", "")] == [None] * 6
    else:
        with pytest.raises(Mismatch):
            key.parse(None)


def test_two_trees_share_nothing():
    one, other = default_config(), default_config()
    one.DATA.IMAGENET_MEAN[0] = 0.1
    one.TRAIN.BASE_LR = 1.0

    assert other.DATA.IMAGENET_MEAN[0] == 0.5 and other.TRAIN.BASE_LR == 1e-3


@pytest.mark.parametrize(
    "name, given, expected",
    [
        ("TRAIN.BASE_LR", "3e-3", 0.003),
        ("TRAIN.BASE_LR", 1, 1.0),
        ("TRAIN.WEIGHT_DECAY", "0", 0.0),
        ("TRAIN.NUM_EPOCHS", 300.0, 300),
        ("TRAIN.NUM_EPOCHS", "1e2", 100),
        ("SEED", str(2**31 - 1), 2**31 - 1),
        ("NGPUS", "-1", -1),
        ("TRAIN.OPTIMIZER.BETAS", "(0.9, 0.95)", (0.9, 0.95)),
        ("TRAIN.OPTIMIZER.BETAS", [0, "9e-1"], (0.0, 0.9)),
        ("DATA.IMAGENET_MEAN", "[0.1, 2e-1, 0.3]", [0.1, 0.2, 0.3]),
        ("DATA.IMAGENET_MEAN", "0.1,", [0.1]),
        ("TRAIN.LR_SCHEDULER.MILESTONES", "30, 60, 90", [30, 60, 90]),
        ("TRAIN.LR_SCHEDULER.MILESTONES", "[]", []),
        ("TRAIN.LR_SCHEDULER.MILESTONES", 30, [30]),
        ("TRAIN.OPTIMIZER.NAME", "adamw", "AdamW"),
        ("TRAIN.OPTIMIZER.NAME", "sGd", "SGD"),
        ("TRAIN.LR_SCHEDULER.NAME", "Cosine", "cosine"),
        ("DATA.IMAGE_CHANNELS", "1", 1),
        ("MODEL.QKV_BIAS", True, True),
        ("SAVE", "none", "none"),
    ],
)
def test_values_become_what_the_key_holds(name, given, expected):
    parsed = keys()[name].parse(given)

    assert parsed == expected and type(parsed) is type(expected)
    if isinstance(expected, (list, tuple)):
        assert [type(item) for item in parsed] == [type(item) for item in expected]


@pytest.mark.parametrize(
    "name, given",
    [
        ("TRAIN.NUM_EPOCHS", 1.5),
        ("TRAIN.NUM_EPOCHS", "many"),
        ("TRAIN.NUM_EPOCHS", True),
        ("TRAIN.NUM_EPOCHS", 0),
        ("TRAIN.NUM_EPOCHS", [1]),
        ("TRAIN.BASE_LR", False),
        ("TRAIN.BASE_LR", "nan"),
        ("TRAIN.BASE_LR", float("inf")),
        ("TRAIN.BASE_LR", 10**400),
        ("TRAIN.BASE_LR", 0),
        ("EVAL", "true"),
        ("EVAL", 1),
        ("SEED", -1),
        ("SEED", 2**31),
        ("NGPUS", 0),
        ("NGPUS", -2),
        ("DATA.BATCH_SIZE", 0),
        ("DATA.IMAGE_CHANNELS", 2),
        ("DATA.CROP_PCT", 0.0),
        ("DATA.CROP_PCT", 1.01),
        ("DATA.IMAGENET_STD", [0.5, 0.0, 0.5]),
        ("DATA.CROP_SCALE", [0.1, 0.2, 0.3]),
        ("DATA.CROP_SCALE", [0.1, 1.5]),
        ("TRAIN.OPTIMIZER.BETAS", 0.9),
        ("TRAIN.OPTIMIZER.BETAS", "(0.9, 1.0)"),
        ("TRAIN.OPTIMIZER.BETAS", "(0.9; 0.99)"),
        ("TRAIN.OPTIMIZER.NAME", "Lion"),
        ("TRAIN.SMOOTHING", 1.0),
        ("TRAIN.GRAD_CLIP", 0),
        ("MODEL.DROPOUT", 1),
        ("SAVE", ""),
        ("SAVE", 7),
    ],
)
def test_other_values_are_refused(name, given):
    with pytest.raises(Mismatch):
        keys()[name].parse(given)


def test_expectations_are_worded():
    assert keys()["TRAIN.BASE_LR"].expected() == "a number > 0"
    assert keys()["SEED"].expected() == "a whole number >= 0 and <= 2147483647"
    assert keys()["NGPUS"].expected() == "a whole number >= 1 or -1"
    assert keys()["MODEL.DEPTH"].expected() == "a whole number >= 1 and <= 1000000, or None"
    assert keys()["TRAIN.OPTIMIZER.BETAS"].expected() == "a list of 2 numbers, each >= 0 and < 1"
    assert keys()["TRAIN.LR_SCHEDULER.MILESTONES"].expected() == "a list of whole numbers, each >= 1"
    assert keys()["TRAIN.OPTIMIZER.NAME"].expected() == "one of AdamW, Adam, SGD"
    assert keys()["EVAL"].expected() == "true or false"
