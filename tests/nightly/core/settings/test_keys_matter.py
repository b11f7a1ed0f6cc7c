"""Keys of points, shapes and volumes: each changes what a step of a training or an evaluation computes."""

import functools
from typing import Any

import numpy as np
import paddle
import pytest

from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import CountingCollate, TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition

SCENES = ("TASK semantic_segmentation -dataset=synthetic_rooms MODEL.NAME minkunet_tutorial DATA.VOXEL_SIZE_M 0.3",)
SCENES += ("POINTS.ROOMS.TRAIN 2", "POINTS.ROOMS.VAL 2", "POINTS.ROOMS.SPACING_M 0.2")
SHAPES = ("TASK shape_classification -dataset=synthetic_solids MODEL.NAME mink_classifier14 SHAPES.VOXEL_SIZE 0.3",)
VOLUMES = ("-cfg=volume_unet3d_phantoms -dataset=nnunet VOLUMES.CROP_SIZE [8,24,16] VOLUMES.UNET_WIDTH 4",)
VOLUMES += ("VOLUMES.UNET_DEPTH 3", "VOLUMES.FOLD 1")

# What a key is changed in, and the key with another value than it has there.
CASES = [
    *((SCENES, f"POINTS.{change}") for change in (
        "FEATURES [xyz]", "COLOR_RANGE [0,1]", "VOXEL_FEATURES mean", "MAX_POINTS 300", "MIX_PROB 1",
        f"CLASS_WEIGHTS {str([1.0, 2.0] * 10).replace(' ', '')}", "FOCAL_GAMMA 2", "TEST_ROTATIONS 2",
        "TEST_FLIPS true", "TEST_VOTES 3", "FRAGMENT_SIZE_M 2", "CROP sphere",
        "AUGMENT.FLIP 1", "AUGMENT.ROTATION_DEGREES 0", "AUGMENT.TILT_DEGREES 0", "AUGMENT.SCALE [1,1]",
        "AUGMENT.JITTER_M 0.1", "AUGMENT.ELASTIC 1", "AUGMENT.DROPOUT 0.5", "AUGMENT.COLOR_JITTER 9",
        "AUGMENT.COLOR_SHIFT 9", "AUGMENT.COLOR_CONTRAST 1",
    )),
    *((SCENES, f"TRAIN.{change}") for change in ("DICE_WEIGHT 1", "LOVASZ_WEIGHT 1", "SMOOTHING 0.1")),
    ((*SCENES, "POINTS.CROP block"), "POINTS.CROP_SIZE_M 2"),
    ((*SCENES, "POINTS.FRAGMENT_SIZE_M 3"), "POINTS.FRAGMENT_OVERLAP_M 2"),
    (SCENES, "DATA.UNIT_M 0.5"),
    *((SHAPES, f"SHAPES.{change}") for change in (
        "VOXEL_SIZE 0.2", "FEATURES [ones]", "POINTS 300", "ROTATION_DEGREES 90",
    )),
    (SHAPES, "TRAIN.SMOOTHING 0.1"),
    ((*SHAPES, "SHAPES.ROTATION_DEGREES 90"), "SHAPES.UP_AXIS x"),
    *((VOLUMES, f"VOLUMES.{change}") for change in (
        "CROP_SIZE [8,8,16]", "NORMALIZE [z_score]", "INTENSITY_WINDOW [-100,100]", "INTENSITY_MEAN_STD [0,50]",
        "ROTATION_DEGREES 20", "SCALE 0.3", "INTENSITY_JITTER 0", "NOISE 0.1", "GAMMA 1", "BLUR 1", "LOW_RESOLUTION 1",
        "OVERLAP 0.8", "WINDOW_WEIGHTS linear", "UNET_WIDTH 8", "UNET_DEPTH 2", "UNET_NORM batch",
        "UNET_ACTIVATION relu", "FOREGROUND_FRACTION 1", "DEEP_SUPERVISION false", "MIRROR_AXES []",
        "TEST_MIRROR true", "SURFACE_DISTANCES false", "FOLD 0", "SPACING_MM [1,2,1]",
    )),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """nnU-Net's layout: five volumes with a ball of a random place and brightness."""
    made = tmp_path_factory.mktemp("organs")
    (made / "dataset.json").write_text('{"channel_names": {"0": "CT"}, "labels": {"background": 0, "ball": 1}}')
    grid = np.stack(np.meshgrid(*map(np.arange, (12, 24, 20)), indexing="ij"), axis=-1)
    for name in ("imagesTr", "labelsTr"):
        (made / name).mkdir()
    for number in range(5):
        noise = np.random.default_rng(number)
        ball = np.linalg.norm(grid - noise.uniform(5, 8, 3), axis=-1) < 4
        volume = noise.normal(0, 60, ball.shape) + ball * noise.uniform(100, 400)
        np.save(made / "imagesTr" / f"case{number}_0000.npy", volume.astype(np.int16))
        np.save(made / "labelsTr" / f"case{number}.npy", ball.astype(np.uint8))
    return made


@functools.cache
def computed(words: tuple[str, ...], folder: Any) -> dict[str, Any]:
    """The terms and gradients of a short training, and the values of an evaluation after it."""
    place = [f"-data_path={folder}"] if words[0] == VOLUMES[0] else []
    values = settings.load([*" ".join(words).split(), *place]).values
    task = resolve("task", values.TASK)(values)
    samples, held_out = (task.build_dataset(split, folder / "decoded") for split in ("train", "val"))
    paddle.seed(0)
    model = task.build_model()

    def batch_of(data, collate):
        indices = range(min(2, len(data)))
        arrays = collate([data.sample(index, np.random.default_rng(index)) for index in indices])
        return {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}

    optimizer = paddle.optimizer.AdamW(0.01, parameters=[p for p in model.parameters() if not p.stop_gradient])
    sizes = {"samples_per_update": 2, "accumulation_steps": 1, "gradient_clip": None}
    updater = TrainStep(task, model, optimizer, TrainingPrecision(False), seed=0, **sizes)
    updates = 3 if place else 1  # after which something is found
    for update in range(updates):
        (terms,) = updater([batch_of(samples, CountingCollate(task))], StepPosition(1, update, updates), 0.02)
    model.eval()
    metrics = task.build_metrics()
    with paddle.no_grad():
        task.eval_step(model, batch_of(held_out, task.collate), EvaluationStep(metrics))
    trained = {name: term.sum.item() * term.weight for name, term in terms.items()}
    return {**trained, "gradient": updater.gradient_norm, **metrics.compute(metrics.state)}


@pytest.mark.parametrize("base, change", CASES, ids=lambda words: words if isinstance(words, str) else "")
def test_a_key_changes_what_is_computed(base, change, folder):
    usual, other = computed(base, folder), computed((*base, change), folder)
    assert {name: round(value, 6) for name, value in usual.items()} != {
        name: round(value, 6) for name, value in other.items()
    }


@pytest.mark.parametrize("base", [SCENES, SHAPES, VOLUMES], ids=["scenes", "shapes", "volumes"])
def test_the_same_keys_compute_the_same(base, folder):
    assert computed(base, folder) == pytest.approx(computed.__wrapped__(base, folder), rel=1e-6)
