"""Who reads a key: those of other tasks are rejected, those this run does not use are reported."""

import shlex
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import DEFAULT_RECIPE, default_config, dump_yaml, load
from paddlevit_dist.core.settings.key import Key
from paddlevit_dist.core.settings.table import KeyTable, find_keys, leaves

_TABLE = "paddlevit_dist.images.classification.settings:TABLE"
IMAGE_TASKS = [task for task, tables in REGISTRY.task_tables.items() if _TABLE in tables]  # they read classifiers' keys
CLASSIFIERS = f"tasks {', '.join(IMAGE_TASKS)}"
POINTS = "TASK: semantic_segmentation\nDATA: {DATASET: synthetic_rooms}\nMODEL: {NAME: minkunet_tutorial}\n"


@pytest.fixture
def own_tasks(monkeypatch):
    """Whatever a test registers is forgotten after it."""
    for table in (REGISTRY.tasks, REGISTRY.task_tables):
        monkeypatch.setitem(table, "mine", ())
        del table["mine"]
    return register_task


@pytest.mark.parametrize(
    "text, words, message",
    [
        (
            POINTS + "TRAIN:\n  MIXUP_ALPHA: 0.1",
            "",
            f"x.yaml:5: TRAIN.MIXUP_ALPHA is read by {CLASSIFIERS}, not by semantic_segmentation: remove it",
        ),
        (
            POINTS + "POINTS: {INSTANCES: {ROTATION: true}}",  # though that is its default
            "",
            "x.yaml:4: POINTS.INSTANCES.ROTATION is read by task pointgroup, not by semantic_segmentation: remove it",
        ),
        (
            "TASK: pointgroup",
            "POINTS.AUGMENT.FLIP 0.1 -image_size=32",
            f"-image_size: DATA.IMAGE_SIZE is read by {CLASSIFIERS}, not by pointgroup: remove it, and also "
            "POINTS.AUGMENT.FLIP (command line)",
        ),
        (
            "SEED: 1",
            "DATA.VOXEL_SIZE_M 0.1 -eval -pretrained=x",
            "command line: DATA.VOXEL_SIZE_M is read by tasks semantic_segmentation, pointgroup, not by "
            "classification: remove it",
        ),
        (
            "TASK: landmarks\nTRAIN: {"
            + ", ".join(f"MIXUP_{x}: 0.1" for x in ("ALPHA", "PROB", "SWITCH_PROB"))
            + ", CUTMIX_ALPHA: 1, SMOOTHING: 0, RAND_AUGMENT: false, COLOR_JITTER: 0, AUTO_AUGMENT: false}",
            "",
            f"x.yaml:2: TRAIN.MIXUP_ALPHA is read by {CLASSIFIERS}, not by landmarks: remove it, and also "
            "TRAIN.MIXUP_PROB (x.yaml:2), TRAIN.MIXUP_SWITCH_PROB (x.yaml:2), TRAIN.CUTMIX_ALPHA (x.yaml:2), "
            "TRAIN.SMOOTHING (x.yaml:2), TRAIN.RAND_AUGMENT (x.yaml:2) and 2 more",
        ),
    ],
)
def test_a_key_of_another_task_is_refused_with_its_place_and_readers(refuse, load_text, text, words, message):
    assert refuse(load_text, text, *shlex.split(words)) == message


def test_each_base_file_for_several_tasks_is_one_notice(write, refuse):
    write("older.yaml", "DETECTION: {EVAL_BATCHING: one_size}\nTRAIN: {CUTMIX_ALPHA: 0.2}")
    write("base.yaml", "BASE: older.yaml\nSEED: 3\nTRAIN: {CUTMIX_ALPHA: 0.1, MIXUP_ALPHA: 0.8}\nVOLUMES: {FLIP: 0.5}")
    write("x.yaml", "BASE: base.yaml\n" + POINTS)

    configuration = load(["-cfg=x.yaml"], DEFAULT_RECIPE)

    assert configuration.values.SEED == 3
    assert configuration.notices == [
        "older.yaml: no effect: DETECTION.EVAL_BATCHING: read by tasks detection, keypoint_detection, "
        "keypoint_heatmaps, not by semantic_segmentation",
        f"base.yaml: no effect: TRAIN.CUTMIX_ALPHA, TRAIN.MIXUP_ALPHA, VOLUMES.FLIP: read by {CLASSIFIERS}, "
        "landmarks, not by semantic_segmentation",
    ]
    message = refuse(load, ["-cfg=x.yaml", "TRAIN.CUTMIX_ALPHA", "0.2"])
    assert message.startswith(f"command line: TRAIN.CUTMIX_ALPHA is read by {CLASSIFIERS}")


def test_a_registered_task_reads_all_keys_unless_it_declares_tables(own_tasks, monkeypatch, refuse):
    words = ["TASK", "mine", "TRAIN.MIXUP_ALPHA", "0.1", "POINTS.AUGMENT.FLIP", "0.1", "VOLUMES.FLIP", "0.1"]
    own_tasks("mine", object)
    assert load(words).notices == load(words, DEFAULT_RECIPE).notices == []
    assert "VOLUMES:" in load(words).describe()

    own = KeyTable((Key("MINE.DEPTH", 3, "int", "how deep it goes"),))
    monkeypatch.setitem(sys.modules, "my_settings", SimpleNamespace(OWN=own))
    own_tasks("mine", object, ["my_settings:OWN", "paddlevit_dist.volumes.settings:LANDMARKS"])
    assert refuse(load, words).startswith(f"command line: TRAIN.MIXUP_ALPHA is read by {CLASSIFIERS}, not by mine")
    values = load(["TASK", "mine", "MINE.DEPTH", "4", "VOLUMES.FLIP", "0.1"]).values
    assert (values.MINE.DEPTH, values.VOLUMES.FLIP) == (4, 0.1)
    assert "read by task mine, not by classification" in refuse(load, ["MINE.DEPTH", "4"])


OPTIMIZER = "TRAIN.OPTIMIZER."


@pytest.mark.parametrize(
    "text, words, notices",
    [
        (
            "TRAIN:\n  OPTIMIZER: {NAME: AdamW, MOMENTUM: 0.9}",
            "",
            [
                f"{OPTIMIZER}MOMENTUM 0.9 (x.yaml:2): no effect: it is for SGD and Muon, and {OPTIMIZER}NAME AdamW "
                "(x.yaml:2)"
            ],
        ),
        (
            "SEED: 1",
            "TRAIN.OPTIMIZER.NAME=SGD TRAIN.OPTIMIZER.EPS=1e-7",
            [
                f"{OPTIMIZER}EPS 1e-07 (command line): no effect: it is for AdamW, Adam, LAMB and Muon, and "
                f"{OPTIMIZER}NAME SGD (command line)"
            ],
        ),
        (
            "TRAIN: {LR_SCHEDULER: {NAME: constant, POWER: 2}, END_LR: 0.1}",
            "",
            [
                f"{name} (x.yaml:1): no effect: it is for {owner}, and TRAIN.LR_SCHEDULER.NAME constant (x.yaml:1)"
                for name, owner in (("TRAIN.LR_SCHEDULER.POWER 2.0", "poly"), ("TRAIN.END_LR 0.1", "cosine and poly"))
            ],
        ),
        (
            "TRAIN: {MODEL_EMA_DECAY: 0.9, WARMUP_START_LR: 0.0}",
            "",
            [
                "TRAIN.WARMUP_START_LR 0.0 (x.yaml:1): no effect: there is no warm-up: TRAIN.WARMUP_EPOCHS 0 (default)",
                "TRAIN.MODEL_EMA_DECAY 0.9 (x.yaml:1): no effect: it is for the averaged weights, and "
                "TRAIN.MODEL_EMA False (default)",
            ],
        ),
        (
            "TASK: pointgroup\nDATA: {DATASET: scenes}\nPOINTS: {ROOMS: {VAL: 24}}",
            "",
            [
                "POINTS.ROOMS.VAL 24 (x.yaml:3): no effect: it is for synthetic_rooms, and DATA.DATASET scenes "
                "(x.yaml:2)"
            ],
        ),
        (
            "TASK: landmarks\nVOLUMES: {HEATMAP: radius, SIGMA_MM: [1, 1, 1]}",
            "",
            [
                "VOLUMES.SIGMA_MM [1.0, 1.0, 1.0] (x.yaml:2): no effect: it is for gaussian, and VOLUMES.HEATMAP "
                "radius (x.yaml:2)"
            ],
        ),
    ],
)
def test_a_key_that_this_run_does_not_use_is_told_once(load_text, text, words, notices):
    assert load_text(text, *words.split()).notices == notices


def test_what_a_recipe_replaces_of_its_base_is_not_told(write):
    write("base.yaml", "TRAIN: {OPTIMIZER: {NAME: AdamW, BETAS: [0.9, 0.99]}, LR_SCHEDULER: {POWER: 2}}")
    write("x.yaml", "BASE: base.yaml\nTRAIN: {OPTIMIZER: {NAME: SGD}}")

    (notice,) = load(["-cfg=x.yaml"]).notices

    assert notice.startswith("TRAIN.LR_SCHEDULER.POWER 2.0 (base.yaml:1): no effect: it is for poly")
    write("base.yaml", "TRAIN: {OPTIMIZER: {NAME: SGD, BETAS: [0.9, 0.99]}}")
    write("x.yaml", "BASE: base.yaml\nSEED: 3")
    (notice,) = load(["-cfg=x.yaml"]).notices  # of the base alone
    assert notice.startswith("TRAIN.OPTIMIZER.BETAS (0.9, 0.99) (base.yaml:1): no effect: it is for AdamW")


def test_an_evaluation_tells_training_keys_of_the_command_line_alone(load_text):
    text = "TRAIN: {BASE_LR: 0.1, SMOOTHING: 0.1, OPTIMIZER: {MOMENTUM: 0.8}}\nDATA: {HORIZONTAL_FLIP: 0.1}\n"
    words = "-eval -pretrained=x -batch_size=4 -epochs=3 DATA.CROP_SCALE [0.5,1] DATA.CROP_PCT 1 SEED 3"

    assert load_text(text, *words.split()).notices == [
        "TRAIN.NUM_EPOCHS 3 (-epochs): no effect: it is for training, and EVAL True (-eval)",
        "DATA.CROP_SCALE [0.5, 1.0] (command line): no effect: it is for training, and EVAL True (-eval)",
    ]
    assert load_text("EVAL: true\n" + text, "-pretrained=x").notices == []


@pytest.mark.parametrize("task", REGISTRY.task_tables)
def test_a_saved_configuration_has_the_keys_of_its_task_and_loads_silently(write, task):
    configuration = load(
        ["TASK", task, "POINTS.INSTANCES.PREPARE_EPOCHS=2"] if task == "pointgroup" else ["TASK", task]
    )
    text = dump_yaml(configuration.values)

    again = load([f"-cfg={write('saved.yaml', text)}"])

    assert again.values == configuration.values and again.notices == []
    assert ("VOLUMES:" in text, "INSTANCES:" in text, "MIXUP_PROB:" in text) == (
        task in ("landmarks", "volume_segmentation"),
        task == "pointgroup",
        task in IMAGE_TASKS,
    )


def test_a_saved_side_that_nobody_wrote_is_not_told_but_an_edited_one_is(write):
    text = dump_yaml(load(["-cfg=rtdetr_shapes"]).values)
    assert "EVAL_LONGEST_SIDE: 1333\n" in text and load([f"-cfg={write('saved.yaml', text)}"]).notices == []
    edited = write("edited.yaml", text.replace("EVAL_LONGEST_SIDE: 1333\n", "EVAL_LONGEST_SIDE: 1200\n"))
    (notice,) = load([f"-cfg={edited}"]).notices
    assert notice.startswith("DATA.EVAL_LONGEST_SIDE 1200 (") and "no effect" in notice


def test_a_configuration_saved_by_an_earlier_version_loads_with_one_notice(write):
    """It has the keys of all tasks; nobody has written those by hand."""
    tree = default_config()
    tree.TASK, tree.TRAIN.NUM_EPOCHS = "semantic_segmentation", 5
    lines = [
        f"{name}: {'null' if value is None else list(value) if isinstance(value, tuple) else value}"
        for name, value in leaves(tree).items()
        if name != "BASE"
    ]

    configuration = load([f"-cfg={write('saved.yaml', chr(10).join(lines))}", "-resume=auto"])

    assert configuration.values.TRAIN.NUM_EPOCHS == 5
    (notice,) = configuration.notices
    others = len(find_keys()) - len(find_keys("semantic_segmentation"))
    assert notice == (
        f"saved.yaml: no effect: {others} keys: read by {CLASSIFIERS}, detection, image_segmentation, "
        "panoptic_segmentation, keypoint_detection, keypoint_heatmaps, landmarks, volume_segmentation, pointgroup, "
        "shape_classification, not by semantic_segmentation"
    )
    assert settings.dump_yaml(configuration.values).count("VOLUMES") == 0


@pytest.mark.parametrize(
    "name, key, default",
    [("Lion", "BETAS", (0.9, 0.99)), ("LAMB", "EPS", 1e-6), ("Muon", "MOMENTUM", 0.95), ("AdamW", "EPS", 1e-8)],
)
def test_an_optimizer_has_the_defaults_of_its_paper_unless_the_key_is_set(name, key, default):
    assert load(["TRAIN.OPTIMIZER.NAME", name]).values.TRAIN.OPTIMIZER[key] == default
    value = "(0.5, 0.6)" if key == "BETAS" else "0.5"
    chosen = load(["TRAIN.OPTIMIZER.NAME", name, f"TRAIN.OPTIMIZER.{key}", value])
    assert chosen.values.TRAIN.OPTIMIZER[key] == ((0.5, 0.6) if key == "BETAS" else 0.5) and not chosen.notices


def test_sgd_refuses_dampening_beside_nesterov_and_a_momentum_that_falls():
    sgd = ["TRAIN.OPTIMIZER.NAME", "SGD"]
    with pytest.raises(UserError, match="TRAIN.OPTIMIZER.NESTEROV True .*DAMPENING 0.1 .*: SGD takes one of them"):
        load([*sgd, "TRAIN.OPTIMIZER.DAMPENING", "0.1", "TRAIN.OPTIMIZER.NESTEROV", "True"])
    with pytest.raises(UserError, match="expected at most TRAIN.OPTIMIZER.MOMENTUM 0.9"):
        load([*sgd, "TRAIN.OPTIMIZER.WARMUP_MOMENTUM", "0.95", "TRAIN.WARMUP_EPOCHS", "1"])
