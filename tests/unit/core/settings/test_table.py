"""The key tables, which task reads which, and what values each key accepts."""

import pytest

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.settings import default_config, load
from paddlevit_dist.core.settings.command_line import all_flags
from paddlevit_dist.core.settings.key import EFFECTS
from paddlevit_dist.core.settings.key_tables import key_tables
from paddlevit_dist.core.settings.table import find_keys, leaves, put
from paddlevit_dist.core.settings.values import InvalidValue


def test_the_tree_has_the_keys_of_all_tasks_each_from_one_row():
    rows = {id(key): key.name for table in key_tables() for key in table.keys}  # tables of several tasks share some
    names = list(rows.values())

    assert sorted(names) == sorted(leaves(default_config())) and len(names) == len(set(names))
    assert {name for task in REGISTRY.task_tables for name in find_keys(task)} == set(names)


DETECTORS = {"detection", "keypoint_detection", "keypoint_heatmaps"}
CLASSIFIERS = {"classification", "linear_probe", "knn_probe", "multi_label", "masked_autoencoder", "self_distillation"}


@pytest.mark.parametrize(
    "name, tasks",
    [
        ("TRAIN.SMOOTHING", {*CLASSIFIERS, "semantic_segmentation", "shape_classification"}),
        ("TRAIN.DICE_WEIGHT", {"image_segmentation", "semantic_segmentation"}),
        ("TRAIN.COLOR_JITTER", {*CLASSIFIERS, *DETECTORS}),
        ("DATA.IMAGE_SIZE", CLASSIFIERS),
        ("MODEL.DROPPATH", {*CLASSIFIERS, *DETECTORS, "image_segmentation", "panoptic_segmentation"}),
        ("PROBE.LEARNING_RATES", {"linear_probe", "knn_probe"}),
        ("DATA.SHAPES.SIDES", {*DETECTORS, "image_segmentation", "panoptic_segmentation"}),
        ("SEGMENTATION.OHEM_MIN_KEPT", {"image_segmentation"}),
        ("DETECTION.EVAL_BATCHING", DETECTORS),
        ("DATA.VOXEL_SIZE_M", {"semantic_segmentation", "pointgroup"}),
        ("POINTS.ROOMS.TRAIN", {"semantic_segmentation", "pointgroup"}),
        ("POINTS.AUGMENT.FLIP", {"semantic_segmentation"}),
        ("POINTS.INSTANCES.ROTATION", {"pointgroup"}),
        ("VOLUMES.FLIP", {"landmarks"}),
        ("TRAIN.BASE_LR", set(REGISTRY.task_tables)),
        ("DATA.DATA_PATH", set(REGISTRY.task_tables)),
        ("MODEL.NUM_CLASSES", set(REGISTRY.task_tables)),
    ],
)
def test_who_reads_a_key(name, tasks):
    assert {task for task in REGISTRY.task_tables if name in find_keys(task)} == tasks


@pytest.mark.parametrize(
    "name, effect, training_only",
    [
        ("TRAIN.BASE_LR", "training", True),
        ("TRAIN.TF32", "score", False),
        ("DATA.CROP_PCT", "training", False),
        ("MODEL.DEPTH", "network", False),
        ("MODEL.DROPPATH", "training", True),
        ("PROBE.KNN_K", "score", False),
        ("EVALUATION.GROUP", "neutral", False),
        ("SAVE", "place", False),
        ("POINTS.INSTANCES.ROTATION", "training", True),
    ],
)
def test_another_value_changes_what_the_field_or_its_section_says(name, effect, training_only):
    assert (find_keys()[name].effect, find_keys()[name].training_only) == (effect, training_only)


def test_effects_are_known_and_flags_have_their_key():
    assert {key.effect for key in find_keys().values()} == set(EFFECTS)
    assert all(key.flag is None or key.flag.key == name for name, key in find_keys().items())
    assert [flag.place for flag in all_flags().values() if flag.group == "data"] == list(range(1, 12))


def test_without_arguments_everything_is_at_its_default():
    configuration = load([])

    assert configuration.values == default_config("classification")  # whose values docs/reference/keys.md states
    assert set(configuration.sources.values()) == {"default"}
    assert configuration.notices == [] and configuration.show is False and configuration.argv == []


def test_each_default_is_a_value_its_key_may_hold():
    for name, key in find_keys().items():
        parsed = key.parse(key.default)

        assert parsed == key.default and type(parsed) is type(key.default), name
        assert key.meaning and "\n" not in key.meaning, name


def test_only_optional_keys_take_none():
    for name, key in find_keys().items():
        if key.optional:
            assert [key.parse(word) for word in (None, "None", "none", "null", "~", "")] == [None] * 6, name
        else:
            with pytest.raises(InvalidValue):
                pytest.fail(f"{name} has taken {key.parse(None)!r} for nothing")


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
    parsed = find_keys()[name].parse(given)

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
        ("EVAL", "maybe"),
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
        ("TRAIN.OPTIMIZER.NAME", "Adagrad"),
        ("TRAIN.SMOOTHING", 1.0),
        ("TRAIN.GRAD_CLIP", 0),
        ("MODEL.DROPOUT", 1),
        ("SAVE", ""),
        ("SAVE", 7),
    ],
)
def test_other_values_are_refused(name, given):
    with pytest.raises(InvalidValue):
        find_keys()[name].parse(given)


def test_expectations_are_worded():
    assert find_keys()["TRAIN.BASE_LR"].expected() == "a number > 0"
    assert find_keys()["SEED"].expected() == "a whole number >= 0 and <= 2147483647"
    assert find_keys()["NGPUS"].expected() == "a whole number >= 1 or -1"
    assert find_keys()["MODEL.DEPTH"].expected() == "a whole number >= 1 and <= 1000000, or None"
    assert find_keys()["TRAIN.OPTIMIZER.BETAS"].expected() == "a list of 2 numbers, each >= 0 and < 1"
    assert find_keys()["TRAIN.LR_SCHEDULER.MILESTONES"].expected() == "a list of whole numbers, each >= 1"
    assert find_keys()["TRAIN.OPTIMIZER.NAME"].expected() == "one of AdamW, Adam, SGD, Lion, LAMB, Muon"
    assert find_keys()["EVAL"].expected() == "true or false"


def test_an_optional_table_applies_once_one_of_its_keys_has_another_value():
    optional = [table for table in key_tables() if table.is_optional]
    assert len(optional) > 2
    assert [table for table in optional if table.applies(default_config())] == []
    for table in optional:
        for key in table.keys:
            values = default_config()
            put(values, key.name, "another value")
            assert [other for other in optional if other.applies(values)] == [table], key.name
    with_all = [table for table in key_tables() if not table.is_optional]
    assert with_all and all(table.applies(default_config()) for table in with_all)


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("images.classification", {"TRAIN.SMOOTHING", "TRAIN.COLOR_JITTER"}),
        ("images.detection", {"TRAIN.COLOR_JITTER"}),
        ("images.segmentation", {"TRAIN.DICE_WEIGHT", "TRAIN.LOVASZ_WEIGHT"}),
        ("points.segmentation", {"TRAIN.SMOOTHING", "TRAIN.DICE_WEIGHT", "TRAIN.LOVASZ_WEIGHT"}),
        ("points.shapes", {"TRAIN.SMOOTHING"}),
    ],
)
def test_a_users_task_that_names_a_table_of_ours_reads_all_that_our_task_reads(table, names):
    assert names <= {key.name for key in import_object(f"paddlevit_dist.{table}.settings:TABLE").keys}
