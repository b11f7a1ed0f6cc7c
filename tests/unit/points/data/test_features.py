"""Voxel features: the range of colors in closed form, first points and means by brute force, and what checkpoints
say about them; the momentum of the networks' batch norms."""

import re
from dataclasses import replace

import numpy as np
import paddle
import pytest
from support.samples.small_scenes import make_samples, scene

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.distributed import DistributedBatchNorm, set_batch_norm_momentum
from paddlevit_dist.core.engine.compatibility import CheckpointDiff
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable
from paddlevit_dist.points.data.images import draw, draw_classes, fit_in_cell
from paddlevit_dist.points.data.scannet_classes import COLORS
from paddlevit_dist.points.data.scene import AS_GIVEN
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.segmentation.task import SemanticSegmentation
from paddlevit_dist.points.sparse.layers import RowsBatchNorm

RANGES = [(-1.0, 1.0), (-0.5, 0.5), (0.0, 1.0), (2.0, 5.0)]
ROOMS = ["-dataset=synthetic_rooms", "POINTS.ROOMS.TRAIN", "2", "POINTS.ROOMS.VAL", "2", "DATA.VOXEL_SIZE_M", "0.2"]
ROOMS += ["POINTS.ROOMS.SPACING_M", "0.15"]


def semantic_task(*words: str) -> SemanticSegmentation:
    names = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial"]
    return SemanticSegmentation(config.load([*names, *ROOMS, *words]).values)


def instance_task(*words: str) -> InstanceSegmentation:
    names = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "MODEL.OPTIONS.width", "4"]
    return InstanceSegmentation(config.load([*names, *ROOMS, *words]).values)


def by_voxel(xyz, size, features):
    """{voxel: features of its points in their order}"""
    found = {}
    for place, row in zip(np.floor(xyz / np.float32(size)).astype(int).tolist(), features):
        found.setdefault(tuple(place), []).append(row.astype(np.float64))
    return found


@pytest.mark.parametrize("low, high", RANGES)
@pytest.mark.parametrize("which", ("first", "mean"))
def test_a_voxel_shows_its_first_point_or_the_mean_of_its_points(which, low, high):
    one = scene(600)
    features = ("height", "rgb", "ones")
    samples = make_samples(
        one, voxel_size_m=0.4, features=features, voxel_features=which, color_range=(low, high), rotations=2
    )
    views = samples.sample(0, None).views
    height = (one.xyz[:, 2] - one.xyz[:, 2].min())[:, None]
    points = np.concatenate([height, low + one.rgb / 255 * (high - low), np.ones((600, 1))], axis=1)
    expected = by_voxel(one.xyz, 0.4, points)
    assert len(expected) < 300 and views[0].features.dtype == np.float32
    for place, shown in zip(views[0].voxels.tolist(), views[0].features):
        members = expected[tuple(place)]
        np.testing.assert_allclose(shown, members[0] if which == "first" else np.mean(members, axis=0), atol=2e-6)
    for view in views:  # each direction has its own voxels
        first = [points[np.flatnonzero(view.inverse == number)[0]] for number in range(len(view.voxels))]
        mean = [points[view.inverse == number].mean(axis=0) for number in range(len(view.voxels))]
        np.testing.assert_allclose(view.features, first if which == "first" else mean, atol=2e-6)


@pytest.mark.parametrize("low, high", RANGES)
@pytest.mark.parametrize("which", ("first", "mean"))
def test_pointgroups_voxels_show_colors_and_positions_likewise(which, low, high):
    one = scene(600)
    words = ["POINTS.COLOR_RANGE", f"[{low}, {high}]", "POINTS.VOXEL_FEATURES", which, "DATA.VOXEL_SIZE_M", "0.4"]
    task = instance_task(*words)
    batch = task.collate([task.build_dataset("val", None).build_sample(one, np.random.default_rng(0))])
    points = np.concatenate([low + one.rgb / 255 * (high - low), one.xyz], axis=1)
    for number, shown in enumerate(batch["features"]):
        members = points[batch["inverse"] == number]
        np.testing.assert_allclose(shown, members[0] if which == "first" else members.mean(axis=0), atol=2e-6)


def test_the_noise_of_pointgroups_colors_is_a_share_of_their_range():
    one = scene(50)
    tasks = [instance_task("POINTS.COLOR_RANGE", text) for text in ("[-1, 1]", "[-0.5, 0.5]")]
    plain, narrow = (
        task.build_dataset("train", None).build_sample(one, np.random.default_rng(3)).scene.rgb for task in tasks
    )
    assert np.abs(plain - (one.rgb / 127.5 - 1)).min() > 1e-3  # there is some
    np.testing.assert_allclose(narrow, plain / 2, atol=1e-6)


def test_the_keys_reach_the_samples_and_defaults_are_what_was_before():
    for task, which in ((semantic_task(), "first"), (instance_task(), "mean")):
        assert task.voxel_features == which and task.signature()["POINTS.COLOR_RANGE"] == [-1.0, 1.0]
    seen = instance_task().build_dataset("val", None).sample(0, np.random.default_rng(0)).scene.rgb
    assert -1.0 <= seen.min() < -0.6 and 0.6 < seen.max() <= 1.0
    words = ("POINTS.COLOR_RANGE", "[-0.5, 0.5]", "POINTS.VOXEL_FEATURES", "mean")
    task = semantic_task(*words)
    samples = task.build_dataset("val", None)
    features = samples.sample(0, None).views[0].features
    assert samples.voxel_features == "mean" and -0.5 <= features.min() < -0.3 and 0.3 < features.max() <= 0.5
    task = instance_task("POINTS.COLOR_RANGE", "[-0.5, 0.5]", "POINTS.VOXEL_FEATURES", "first")
    samples = task.build_dataset("val", None)
    sample = samples.sample(0, np.random.default_rng(0))
    batch = task.collate([sample])
    first = [np.flatnonzero(batch["inverse"] == number)[0] for number in range(5)]
    np.testing.assert_allclose(batch["features"][:5, :3], sample.scene.rgb[first], atol=1e-6)
    assert np.abs(sample.scene.rgb).max() <= 0.5


def test_a_range_that_is_none_is_told():
    for text in ("[0.5, -0.5]", "[0.5, 0.5]"):
        with pytest.raises(
            UserError, match=r"POINTS.COLOR_RANGE .*\(command line\): expected the smaller number first"
        ):
            semantic_task("POINTS.COLOR_RANGE", text)
    for text in ("[0, 1e40]", "[-2e6, 0]"):
        with pytest.raises(UserError, match=r"POINTS.COLOR_RANGE .*>= -1e\+06 and <= 1000000"):
            semantic_task("POINTS.COLOR_RANGE", text)
    with pytest.raises(UserError, match="POINTS.VOXEL_FEATURES"):
        semantic_task("POINTS.VOXEL_FEATURES", "median")


@pytest.mark.parametrize("make", (semantic_task, instance_task))
def test_checkpoints_say_what_the_network_has_seen(make, monkeypatch):
    trained = make()
    trained.build_dataset("val", None)
    seen = trained.signature()
    monkeypatch.setattr("paddlevit_dist.core.engine.compatibility.read_facts", lambda source: {"input": seen})
    assert seen["coordinates"] == AS_GIVEN
    changes = {
        "DATA.VOXEL_SIZE_M": ["0.25"],
        "POINTS.COLOR_RANGE": ["[-0.5, 0.5]"],
        "POINTS.VOXEL_FEATURES": ["mean" if seen["POINTS.VOXEL_FEATURES"] == "first" else "first"],
    }
    for name, value in changes.items():
        other = make(name, *value)
        other.build_dataset("val", None)
        with pytest.raises(UserError, match=f"{name} .* there, .* here; use the same settings, or add -allow_changes"):
            CheckpointDiff("evaluate", "weights", other.config, other).input()
    same = make("POINTS.VOXEL_FEATURES", seen["POINTS.VOXEL_FEATURES"])  # said or not
    same.build_dataset("val", None)
    assert CheckpointDiff("evaluate", "weights", same.config, same).input() == []
    seen["coordinates"] = "elsewhere"
    with pytest.raises(UserError, match="coordinates elsewhere there, as given here"):
        CheckpointDiff("evaluate", "weights", same.config, same).input()


@pytest.mark.parametrize("momentum, expected", (("0.02", 1), ("0.49", 1), ("0.5", 0), ("0.98", 0)))
def test_the_momentum_of_pytorch_is_noticed(momentum, expected):
    words = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", *ROOMS]
    notices = config.load([*words, "TRAIN.BATCH_NORM_MOMENTUM", momentum]).notices
    lines = [line for line in notices if "TRAIN.BATCH_NORM_MOMENTUM" in line]
    assert len(lines) == expected and all("PyTorch" in line and "0.02 is 0.98 here" in line for line in lines)


def momenta(model):
    layers = [layer for layer in model.sublayers() if isinstance(layer, DistributedBatchNorm)]
    return [round(float(re.search("momentum=([0-9.]+)", layer.extra_repr())[1]), 6) for layer in layers]


@pytest.mark.parametrize("make", (semantic_task, instance_task))
def test_the_momentum_of_all_batch_norms_of_a_network(make):
    task = make()
    task.build_dataset("val", None)
    model = task.build_model()
    number = len(momenta(model))
    assert number >= 3 and set(momenta(model)) == {0.9}
    assert set_batch_norm_momentum(model, 0.98) == number and set(momenta(model)) == {0.98}


def test_running_statistics_keep_that_share():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (64, 5)).astype(np.float32)
    for layer in (RowsBatchNorm(5), paddle.nn.BatchNorm1D(5)):
        model = paddle.nn.Sequential(layer)
        set_batch_norm_momentum(model, 0.98)
        for _ in range(3):
            model(paddle.to_tensor(rows))
        np.testing.assert_allclose(layer.state_dict()["_mean"].numpy(), (1 - 0.98**3) * rows.mean(axis=0), rtol=1e-4)


@pytest.mark.parametrize(
    "words, reason",
    (
        (["-dataset=digits"], "it is for SGD"),
        (["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.OPTIMIZER.MOMENTUM", "0"], "it is for the momentum of SGD"),
    ),
)
def test_dampening_without_momentum_is_told(words, reason):
    (notice,) = config.load([*words, "TRAIN.OPTIMIZER.DAMPENING", "0.1"]).notices
    assert notice.startswith(f"TRAIN.OPTIMIZER.DAMPENING 0.1 (command line): no effect: {reason}, and")


def draw_voxels(reading, class_names, has_colors):
    """Voxels in the color of their first point, and in that of the class of their last one."""
    view, one = reading.views[0], reading.scene
    first, labels = {}, np.full(len(view.voxels), -100)
    for point, voxel in enumerate(view.inverse.tolist()):
        first.setdefault(voxel, point)
        labels[voxel] = one.semantic[point]
    places = view.voxels.astype(np.float32)
    parts = [draw_classes(places, labels, class_names, 240)]
    if has_colors:
        colors = one.rgb[[first[voxel] for voxel in range(len(places))]]
        parts.insert(0, draw(places, colors, np.ones(len(places), bool), 240))
    return np.concatenate([fit_in_cell(part) for part in parts], axis=1)


@pytest.mark.parametrize("features, has_colors", (("[height, rgb]", True), ("[ones]", False)))
def test_images_show_the_voxels_that_the_network_sees(features, has_colors):
    """With evaluations in two directions, of which the first is shown."""
    words = ("POINTS.TEST_ROTATIONS", "2", "POINTS.FEATURES", features, "POINTS.COLOR_RANGE", "[-0.5, 1.5]")
    task = semantic_task(*words)
    samples = task.build_dataset("train", None)
    readings = [samples.sample(index, np.random.default_rng(index)) for index in range(2)]
    drawing, names = get_aspect(task, Drawable), task.class_names
    batches = [(readings, drawing.visualize_batch(samples, task.collate(readings), 1))]
    evaluated = task.build_dataset("val", None)
    assert evaluated.rotations == 2
    plain = [evaluated.sample(index, np.random.default_rng(9)) for index in (1, 0)]
    batches += [
        (plain, drawing.visualize_batch(evaluated, task.collate(plain), 1)),
        (plain, drawing.visualize_eval_samples(evaluated, [1, 0])),
        (
            [replace(samples, steps=()).sample(index, None) for index in (1, 0)],
            drawing.visualize_eval_samples(samples, [1, 0]),
        ),
    ]
    for expected, images in batches:
        for reading, (image, caption) in zip(expected, images, strict=True):
            assert caption == f"{len(reading.views[0].voxels):,} voxels of {len(reading.scene.xyz):,} points"
            np.testing.assert_array_equal(image, draw_voxels(reading, names, has_colors))
    assert len(drawing.image_legend()) == 20 and drawing.image_legend()[3] == (names[3], COLORS[3])
