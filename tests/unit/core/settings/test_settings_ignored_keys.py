"""Keys that have no effect with the other settings: each has a line, and the same key with an effect has none."""

import pytest

from paddlevit_dist.core.engine.settings import resolve_epochs
from paddlevit_dist.core.settings import load

# A recipe, words with which the last key has no effect, and words with which it has one.
IGNORED = [
    ("vit_digits", "TRAIN.MIXUP_MODE=pair", "TRAIN.MIXUP_ALPHA=0.8"),
    ("vit_digits", "TRAIN.MIXUP_PROB=0.5", "TRAIN.CUTMIX_MINMAX=[0.2,0.8]"),
    ("vit_digits", "TRAIN.MIXUP_ALPHA=1 TRAIN.MIXUP_SWITCH_PROB=0.3", "TRAIN.CUTMIX_ALPHA=1"),
    ("vit_digits", "TRAIN.MIXUP_SWITCH_PROB=0.3", "TRAIN.MIXUP_ALPHA=1 TRAIN.CUTMIX_MINMAX=[0.2,0.8]"),
    ("vit_digits", "TRAIN.CUTMIX_MINMAX=[0.2,0.8] TRAIN.CUTMIX_ALPHA=1", "TRAIN.CUTMIX_MINMAX=None"),
    ("vit_digits", "TRAIN.RANDOM_ERASE_COUNT=3", "TRAIN.RANDOM_ERASE_PROB=0.2"),
    ("vit_digits", "TRAIN.RAND_AUGMENT_LAYERS=3", "TRAIN.RAND_AUGMENT=true"),
    ("vit_digits", "EVALUATION.INTERVAL=off EVALUATION.RESAMPLES=200", "EVALUATION.INTERVAL=99"),
    ("vit_digits", "EVALUATION.INTERVAL=off EVALUATION.GROUP=groups.csv", "EVALUATION.INTERVAL=99"),
    ("vit_digits", "TRAIN.NUM_EPOCHS=10 VALIDATE_FREQ=1 TRAIN.PATIENCE=9", "TRAIN.NUM_EPOCHS=11"),
    ("vit_digits", "TRAIN.NUM_EPOCHS=10 VALIDATE_FREQ=3 TRAIN.PATIENCE=3", "VALIDATE_FREQ=2"),
    ("vit_digits", "TRAIN.NUM_EPOCHS=10 TRAIN.PATIENCE=9 TRAIN.MIN_IMPROVEMENT=1", "TRAIN.NUM_EPOCHS=99"),
    ("vit_digits", "MODEL.PRETRAINED_PART=model_ema", "MODEL.PRETRAINED=weights"),
    ("vit_digits", "MODEL.MIN_LOADED_FRACTION=0.5", "MODEL.PRETRAINED=weights"),
    ("vit_digits", "MODEL.TYPE=swin", "MODEL.NAME=swin_tiny_patch4_window7_224"),
    (
        "vit_digits",
        "TRAIN.OPTIMIZER.NAME=SGD TRAIN.OPTIMIZER.MOMENTUM=0 TRAIN.OPTIMIZER.NESTEROV=true",
        "TRAIN.OPTIMIZER.MOMENTUM=0.9",
    ),
    ("vit_digits", "DATA.HORIZONTAL_FLIP=0.5", "DATA.DATASET=cifar10"),
    ("vit_digits", "DATA.CROP_PCT=0.9", "DATA.DATASET=cifar10"),
    ("vit_digits", "DATA.DATASET=cifar10 DATA.GLYPH_DISTORTION=0.5", "DATA.DATASET=digits"),
    ("vit_digits", "DATA.VAL_FRACTION=0.2 DATA.VAL_FRACTION_IF_MISSING=0.1", "DATA.VAL_FRACTION=None"),
    (
        "vit_digits",
        "DATA.DATASET=imagenet2012 DATA.DATA_PATH=/data DATA.REMOTE_CACHE_GIGABYTES=5",
        "DATA.DATA_PATH=http://127.0.0.1:1/tars",
    ),
    ("vit_digits", "DATA.VAL_SEED=3", "DATA.VAL_FRACTION=0.2"),
    ("detr_shapes", "DATA.VAL_SEED=3", "DATA.VAL_FRACTION_IF_MISSING=0.2"),
    ("segformer_b0_shapes", "DATA.VAL_SEED=3", "DATA.VAL_FRACTION=0.2"),
    ("detr_shapes", "MODEL.PRETRAINED=weights MODEL.BACKBONE_PRETRAINED=backbone", "MODEL.PRETRAINED=None"),
    ("detr_shapes", "DETECTION.EVAL_BATCHING=one_size DATA.EVAL_LONGEST_SIDE=99", "DETECTION.EVAL_BATCHING=single"),
    (
        "detr_shapes",
        "DETECTION.EVAL_BATCHING=one_size DETECTION.EXPORT_SIZE=[32,32] DATA.EVAL_SHORTEST_SIDE=48",
        "DETECTION.EXPORT_SIZE=None",
    ),
    ("probe_linear", "PROBE.KNN_K=5", "TASK=knn_probe"),
    ("probe_linear", "TASK=knn_probe PROBE.LEARNING_RATES=0.1", "TASK=linear_probe"),
    ("minkunet14_synthetic_rooms", "POINTS.FEATURES=xyz POINTS.COLOR_RANGE=[-0.5,0.5]", "POINTS.FEATURES=rgb"),
    ("minkunet14_synthetic_rooms", "POINTS.FEATURES=xyz POINTS.AUGMENT.COLOR_SHIFT=9", "POINTS.FEATURES=rgb"),
    ("pointgroup_synthetic_rooms", "POINTS.INSTANCES.FULL_SCALE=300", "POINTS.MAX_POINTS=50000"),
    ("mink_classifier_solids", "DATA.DATASET=modelnet10 SHAPES.SOLIDS.VAL=7", "DATA.DATASET=synthetic_solids"),
    ("landmark_unet3d", "VOLUMES.FLIP=0 VOLUMES.MIRROR_PAIRS=a:b", "VOLUMES.FLIP=0.5"),
    (
        "volume_unet3d_phantoms",
        "VOLUMES.NORMALIZE=z_score VOLUMES.INTENSITY_WINDOW=[0,1]",
        "VOLUMES.NORMALIZE=percentiles",
    ),
]


OPTIMIZER = {  # values that are not the default, and the optimizers whose papers have them
    "EPS": ("1e-5", {"AdamW", "Adam", "LAMB", "Muon"}),
    "BETAS": ("[0.8,0.9]", {"AdamW", "Adam", "Lion", "LAMB", "Muon"}),
    "MOMENTUM": ("0.7", {"SGD", "Muon"}),
    "WARMUP_MOMENTUM": ("0.6", {"SGD", "Muon"}),
    "DAMPENING": ("0.5", {"SGD"}),
    "NESTEROV": ("true", {"SGD"}),
}
SCHEDULES = {
    **{"LR_SCHEDULER.MILESTONES": ("[3]", {"step"}), "LR_SCHEDULER.GAMMA": ("0.5", {"step"})},
    **{"LR_SCHEDULER.POWER": ("2", {"poly"}), "END_LR": ("1e-6", {"cosine", "poly"})},
    **{"LR_SCHEDULER.RISE": ("0.4", {"onecycle"}), "LR_SCHEDULER.DIVISORS": ("[20,1e3]", {"onecycle"})},
    **{"WARMUP_EPOCHS": ("2", {"cosine", "constant", "step", "poly"})},
    **{"WARMUP_START_LR": ("1e-5", {"cosine", "constant", "step", "poly"})},
}
NEEDS = [  # keys, and what makes a run read them
    ("TRAIN.MIN_IMPROVEMENT=0.5", ["TRAIN.PATIENCE=5"]),
    ("TRAIN.GRAD_CLIP_MODE=tensor", ["TRAIN.GRAD_CLIP=1"]),
    ("TRAIN.LORA.ALPHA=3", ["TRAIN.LORA.RANK=2"]),
    ("TRAIN.LORA.TARGETS=[mlp]", ["TRAIN.LORA.RANK=2"]),
    ("TRAIN.MODEL_EMA_DECAY=0.5", ["TRAIN.MODEL_EMA=true"]),
    ("TRAIN.MODEL_EMA_WARMUP=7", ["TRAIN.MODEL_EMA=true"]),
    ("AMP_DTYPE=bfloat16", ["AMP=true", "EVAL_AMP=true"]),
    ("AMP_LEVEL=O2", ["AMP=true", "EVAL_AMP=true"]),
]


def list_ignored(recipe, *words):
    """Return the keys that have no effect; of two words with the same key, the last counts."""
    last = {word.partition("=")[0]: word for word in words}
    return [notice.split()[0] for notice in load([f"-cfg={recipe}", *last.values()]).notices if ": no effect" in notice]


@pytest.mark.parametrize(("recipe", "words", "others"), IGNORED)
def test_a_key_without_effect_has_a_line(recipe, words, others):
    name = words.split()[-1].partition("=")[0]
    assert name in list_ignored(recipe, *words.split())
    assert name not in list_ignored(recipe, *words.split(), *others.split())


def test_groups_without_intervals_are_a_column_of_the_table_of_samples(tmp_path):
    words = ["-eval", "-pretrained=weights", "EVALUATION.INTERVAL=off", "EVALUATION.GROUP=groups.csv"]
    assert list_ignored("vit_digits", *words) == ["EVALUATION.GROUP"]
    assert list_ignored("vit_digits", *words, f"-per_sample={tmp_path}/table.csv") == []


def test_heat_maps_are_for_landmarks():
    assert list_ignored("volume_unet3d_phantoms", "VOLUMES.HEATMAP=radius") == ["VOLUMES.HEATMAP"]
    assert "VOLUMES.HEATMAP" not in list_ignored("landmark_unet3d", "VOLUMES.HEATMAP=radius")


def test_a_training_set_is_for_the_search_of_leaks():
    words = ["-eval", "-pretrained=weights", "TRAIN_DATA=other"]
    assert list_ignored("vit_digits", *words) == ["TRAIN_DATA"]
    assert list_ignored("vit_digits", *words, "-exclude_leaked") == []


def test_a_patience_is_compared_with_the_epochs_that_follow_from_the_data():
    run = load(["-cfg=finetune_folder", "-data_path=.", "TRAIN.PATIENCE=9"])
    few, many = (resolve_epochs(run, 1, samples, "images") for samples in (10**6, 300))
    assert (few.values.TRAIN.NUM_EPOCHS, many.values.TRAIN.NUM_EPOCHS) == (10, 100)
    lines = [[notice for notice in found.notices if "PATIENCE" in notice] for found in (run, many, few)]
    reason = "10 evaluations (VALIDATE_FREQ 1) end before: TRAIN.NUM_EPOCHS 10"
    assert lines == [[], [], [f"TRAIN.PATIENCE 9: no effect: {reason}"]]


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adam", "Lion", "LAMB", "Muon"])
def test_each_optimizer_ignores_what_others_have(name):
    own = [f"TRAIN.OPTIMIZER.{key}={value}" for key, (value, _) in OPTIMIZER.items() if key != "DAMPENING"]
    found = list_ignored("vit_digits", f"TRAIN.OPTIMIZER.NAME={name}", "TRAIN.WARMUP_EPOCHS=2", *own)
    ignored = {f"TRAIN.OPTIMIZER.{key}" for key, (_, readers) in OPTIMIZER.items() if name not in readers}
    assert {key for key in found if key.startswith("TRAIN.OPTIMIZER.")} == ignored - {"TRAIN.OPTIMIZER.DAMPENING"}
    found = list_ignored("vit_digits", f"TRAIN.OPTIMIZER.NAME={name}", "TRAIN.OPTIMIZER.DAMPENING=0.5")
    assert ("TRAIN.OPTIMIZER.DAMPENING" in found) == (name != "SGD")


@pytest.mark.parametrize("name", ["cosine", "constant", "step", "poly", "onecycle"])
def test_each_schedule_ignores_what_others_have(name):
    words = [f"TRAIN.{key}={value}" for key, (value, _) in SCHEDULES.items()]
    found = list_ignored("vit_digits", f"TRAIN.LR_SCHEDULER.NAME={name}", *words)
    assert {key for key in found if key.removeprefix("TRAIN.") in SCHEDULES} == {
        f"TRAIN.{key}" for key, (_, readers) in SCHEDULES.items() if name not in readers
    }


def test_each_detail_needs_what_it_is_a_detail_of():
    details = ["TRAIN.GRAD_CLIP=None", *(word for word, _ in NEEDS)]
    names = {word.partition("=")[0] for word, _ in NEEDS}
    details.append("-pretrained=weights")
    assert names <= {*list_ignored("vit_digits", *details)}
    for number in range(2):
        readers = {reads[min(number, len(reads) - 1)] for _, reads in NEEDS}
        assert not names & {*list_ignored("vit_digits", *details, *readers)}
