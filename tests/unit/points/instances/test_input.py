"""Scenes and batches as PointGroup reads them, against a plain version with the same random numbers."""

import math

import numpy as np
import pytest
from support.samples.displaced import displace

from paddlevit_dist.core import settings
from paddlevit_dist.points.data.elastic import grid_shape
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.samples import collate_samples
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.instances.batches import instance_fields
from paddlevit_dist.points.instances.input import InstanceSamples, build_steps, crop

DEVIATION, FLIP, COLOR_NOISE = 0.1, 0.5, 0.1  # of the published program


def room(index=0, spacing_m=0.08):
    return SyntheticRooms(None, "train", None, num_train=4, spacing_m=spacing_m).read(index)


def make_samples(dataset, scale, is_training=True, max_points=None):
    """Samples with the keys' defaults."""
    words = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "-dataset=synthetic_rooms"]
    words += [] if max_points is None else ["POINTS.MAX_POINTS", str(max_points)]
    steps = build_steps(settings.load(words).values.POINTS, scale, is_training)
    return InstanceSamples(dataset, steps, "mean")


def make_sample(scene, scale, seed=0, **options):
    return make_samples(None, scale, **options).build_sample(scene, np.random.default_rng(seed))


def plain(scene, scale, max_points, generator):
    """The same steps one after the other, without what makes them fast."""
    noise = generator.standard_normal((3, 3))
    matrix = np.eye(3) + DEVIATION * noise
    matrix[0, 0] *= -1 if generator.random() < FLIP else 1
    angle = 2 * math.pi * generator.random()
    turn = [[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0], [0, 0, 1]]
    xyz = (scene.xyz.astype(np.float64) @ matrix @ turn).astype(np.float32)
    voxels = xyz.astype(np.float64) * scale
    for granularity, magnitude in ((6 * scale // 50, 40 * scale / 50), (20 * scale // 50, 160 * scale / 50)):
        middle = (voxels.min(axis=0) + voxels.max(axis=0)) / 2
        nodes = grid_shape(voxels - middle, granularity)
        noise = generator.standard_normal((nodes[0], 3, *nodes[1:]), dtype=np.float32).swapaxes(0, 1)
        voxels = displace(voxels - middle, noise, granularity, magnitude) + middle
    voxels -= voxels.min(axis=0)
    kept = np.ones(len(voxels), bool)
    limits = np.array([512.0] * 3)
    moved = voxels
    while kept.sum() > max_points:
        moved = voxels + np.minimum(limits - np.ptp(voxels, axis=0) + 0.001, 0) * generator.random(3)
        kept = (moved >= 0).all(axis=1) & (moved < limits).all(axis=1)
        limits[:2] -= 32
    colors = scene.rgb / 127.5 - 1 + COLOR_NOISE * generator.standard_normal(3)
    return matrix @ turn, np.floor(moved[kept]).astype(int), xyz[kept], colors[kept], kept


@pytest.mark.parametrize("max_points", [10**6, 300])
def test_heights_in_a_crop_are_above_the_lowest_point_of_the_scene(max_points):
    scene, lowest = room(), []
    slope = np.c_[0 * scene.xyz[:, :2], 2 * scene.xyz[:, 0] + 40].astype(np.float32)
    scene = scene._replace(xyz=scene.xyz + slope)
    for is_training in (False, True):
        steps = make_samples(None, 50.0, is_training, max_points).steps
        samples = InstanceSamples(None, steps, "first", features=("height",))
        for seed in range(4):
            height, *_, z = samples.build_sample(scene, np.random.default_rng(seed)).views[0].features.T
            lowest.append(height.min())
            assert np.ptp(z - height) < 1e-4
            if not is_training:
                np.testing.assert_allclose(z - height, scene.xyz[:, 2].min(), rtol=1e-5)
    assert (max(lowest) > 0.5) == (max_points == 300)


@pytest.mark.parametrize("max_points", [10**6, 1500])
def test_a_training_scene_is_that_of_the_plain_steps(max_points):
    scene = room()
    found = make_sample(scene, 50.0, 3, max_points=max_points)
    _, voxels, xyz, colors, kept = plain(scene, 50.0, max_points, np.random.default_rng(3))
    assert 0 < len(found.voxels) <= max_points and (max_points < len(scene.xyz)) == (kept.sum() < len(kept))
    # An equal product in another order rounds differently, which may carry a point over a voxel's border.
    assert (abs(found.voxels - voxels).max(axis=1) == 0).mean() > 0.999
    np.testing.assert_allclose(found.scene.xyz, xyz, atol=1e-5)
    np.testing.assert_allclose(found.scene.rgb, colors, atol=1e-5)
    np.testing.assert_array_equal(found.scene.semantic, scene.semantic[kept], strict=True)
    old, new = scene.instance[kept], found.scene.instance
    np.testing.assert_array_equal(old < 0, new < 0, strict=True)
    assert len(set(zip(old.tolist(), new.tolist()))) == len(set(old.tolist())) == len(set(new.tolist()))
    assert sorted(set(new[new >= 0].tolist())) == list(range(len(found.table.sizes)))


def test_an_evaluation_scene_is_the_scene():
    scene = room()
    found = make_sample(scene, 20.0, is_training=False)
    assert np.array_equal(found.scene.xyz, scene.xyz) and np.array_equal(found.scene.semantic, scene.semantic)
    low = (scene.xyz.astype(np.float64) * 20).min(axis=0)
    assert np.array_equal(found.voxels, np.floor(scene.xyz.astype(np.float64) * 20 - low))


def test_a_crop_that_would_leave_nothing_keeps_a_random_part_of_what_there_was():
    xyz = np.zeros((500, 3)) + 0.5  # all in one place: a box has all of them or none
    moved, kept = crop(xyz, 100, 512, np.random.default_rng(0))
    assert np.count_nonzero(kept) == 100 and (moved[kept] >= 0).all()
    columns = np.zeros((300, 3))
    columns[:, 0] = np.repeat([0.0, 9000.0], 150)  # the box falls between the two, sooner or later
    for seed in range(10):
        moved, kept = crop(columns, 20, 512, np.random.default_rng(seed))
        assert np.count_nonzero(kept) == 20 and (moved[kept] >= 0).all()


def test_the_fields_of_a_batch():
    scenes = [make_sample(room(i), 20.0, i) for i in range(2)]
    batch = {**collate_samples(scenes), **instance_fields(scenes)}
    points, voxels = sum(len(sample.voxels) for sample in scenes), len(batch["coordinates"])
    expected = {
        "coordinates": (np.int32, (voxels, 4)),
        "features": (np.float32, (voxels, 6)),
        "inverse": (np.int64, (points,)),
        "xyz": (np.float32, (points, 3)),
        "labels": (np.int64, (points,)),
        "instance_labels": (np.int32, (points,)),
        "instance_centers": (np.float32, (points, 3)),
        "offsets": (np.int32, (3,)),
    }
    assert set(batch) == set(expected)
    for name, (dtype, shape) in expected.items():
        assert (batch[name].dtype, batch[name].shape) == (dtype, shape), name
    assert batch["offsets"].tolist() == [0, len(scenes[0].voxels), points]
    numbers = np.repeat([0, 1], [len(sample.voxels) for sample in scenes])
    rows = np.c_[numbers, np.concatenate([sample.voxels for sample in scenes])]
    assert np.array_equal(batch["coordinates"][batch["inverse"]], rows)
    np.testing.assert_array_equal(batch["xyz"], np.concatenate([sample.scene.xyz for sample in scenes]), strict=True)
    assert np.array_equal(batch["labels"], np.concatenate([sample.scene.semantic for sample in scenes]))
    shown = np.concatenate([np.c_[sample.scene.rgb, sample.scene.xyz] for sample in scenes])
    for voxel in (0, 17, voxels - 1):
        members = batch["inverse"] == voxel
        np.testing.assert_allclose(batch["features"][voxel], shown[members].mean(axis=0), atol=1e-5)
    sizes = np.concatenate([sample.table.sizes for sample in scenes])
    assert batch["instance_labels"].max() == len(sizes) - 1
    for number, size in enumerate(sizes):
        members = np.flatnonzero(batch["instance_labels"] == number)
        assert len(members) == size and len(set(numbers[members].tolist())) == 1
        middle = batch["xyz"][members].mean(axis=0, dtype=np.float64)
        np.testing.assert_allclose(batch["instance_centers"][members], np.tile(middle, (size, 1)), atol=1e-4)
    assert (batch["instance_centers"][batch["instance_labels"] < 0] == -100).all()


def test_a_scene_without_instances_and_an_instance_of_one_point():
    xyz = np.random.default_rng(0).random((50, 3), np.float32)
    rgb = np.zeros((50, 3), np.uint8)
    none = np.full(50, -100, np.int16)
    single = none.copy()
    single[7] = 4
    bare = make_sample(Scene(xyz, rgb, none, none, "bare"), 20.0)
    lone = make_sample(Scene(xyz, rgb, single, single, "lone"), 20.0)
    assert len(bare.table.sizes) == 0 and (bare.table.gather_for_points(bare.scene.instance) == -100).all()
    assert lone.table.sizes.tolist() == [1] and lone.scene.instance[7] == 0
    np.testing.assert_allclose(
        lone.table.gather_for_points(lone.scene.instance)[7], np.tile(lone.scene.xyz[7], 3), atol=1e-6
    )
    batch = instance_fields([bare, lone, bare, lone])
    assert sorted(set(batch["instance_labels"].tolist())) == [-100, 0, 1]
