"""Augmentation of scenes: what changes, by how much, and what must not."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest

from paddlevit_dist.errors import UserError
from paddlevit_dist.points.data.augment import (
    Affine,
    Augmentation,
    ColorContrast,
    ColorDrop,
    ColorJitter,
    Dropout,
    Elastic,
    Jitter,
    Strength,
    affine_matrix,
    crop_to_budget,
    mix,
    select,
)
from paddlevit_dist.points.data.elastic import blur, displace, elastic_distortion, grid_shape
from paddlevit_dist.points.data.scene import Scene

ALL = [
    Affine(0.1, 0.5, math.pi, 0.1, (0.8, 1.2)),
    Jitter(0.01),
    Elastic(),
    Dropout(0.3),
    ColorJitter(8.0, 20.0),
    ColorContrast(1.0),
    ColorDrop(1.0),
]


def scene_of(points=2000, seed=0):
    generator = np.random.default_rng(seed)
    return Scene(
        generator.uniform((0, 0, 0), (4, 3, 2), (points, 3)).astype(np.float32),
        generator.integers(40, 200, (points, 3), dtype=np.uint8),
        generator.integers(0, 20, points).astype(np.int16),
        np.where(np.arange(points) % 3 == 0, -100, np.arange(points) % 7).astype(np.int16),
        "room",
    )


def generator(seed=0):
    return np.random.default_rng(seed)


def distances(xyz):
    return np.linalg.norm(xyz[::50, None].astype(np.float64) - xyz[None, ::50], axis=-1)


@pytest.mark.parametrize("augmentation", ALL, ids=lambda step: type(step).__name__)
def test_an_augmentation_keeps_dtypes_follows_its_generator_and_leaves_its_input_alone(augmentation):
    scene = scene_of()
    for array in scene[:4]:
        array.setflags(write=False)  # as arrays that are views of a file
    once, again, other = (augmentation(scene, generator(seed)) for seed in (1, 1, 2))
    for a, b, c in zip(once[:4], again[:4], scene[:4]):
        assert np.array_equal(a, b) and a.dtype == c.dtype and a.shape[1:] == c.shape[1:]
    assert len({len(array) for array in once[:4]}) == 1
    changed = any(not np.array_equal(a, b) for a, b in zip(once[:4], scene[:4]))
    differs = any(not np.array_equal(a, b) for a, b in zip(once[:4], other[:4]))
    assert changed and (differs or isinstance(augmentation, ColorDrop))
    assert pickle.loads(pickle.dumps(augmentation)) == augmentation


@pytest.mark.parametrize("augmentation", ALL, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("points", (0, 1))
def test_an_augmentation_does_with_hardly_any_point(augmentation, points):
    assert len(augmentation(scene_of(points), generator()).xyz) == points


def test_rotation_and_flip_keep_distances_and_heights():
    scene = scene_of()
    turned = Affine(flip=0.5, rotation=math.pi)(scene, generator(3))
    assert distances(turned.xyz) == pytest.approx(distances(scene.xyz), abs=1e-4)
    assert turned.xyz[:, 2] == pytest.approx(scene.xyz[:, 2], abs=1e-5)


def test_scale_is_of_all_distances_and_tilt_is_small():
    scene = scene_of()
    larger = Affine(scale=(1.25, 1.25))(scene, generator())
    assert distances(larger.xyz) == pytest.approx(1.25 * distances(scene.xyz), abs=1e-4)
    tilted = Affine(tilt=0.05)(scene, generator())
    assert distances(tilted.xyz) == pytest.approx(distances(scene.xyz), abs=1e-4)
    assert 0 < abs(tilted.xyz - scene.xyz).max() < 0.5


def test_all_directions_and_both_mirror_images_occur():
    step = Affine(flip=0.5, rotation=math.pi)
    matrices = np.array([step.matrix(generator(seed)) for seed in range(400)])
    determinants = np.linalg.det(matrices)
    assert abs(determinants) == pytest.approx(np.ones(400)) and 150 < (determinants > 0).sum() < 250
    angles = np.arctan2(matrices[:, 0, 1], matrices[:, 0, 0])
    assert np.histogram(angles, 8, (-math.pi, math.pi))[0].min() > 25


def test_the_angle_turns_from_x_towards_y():
    assert np.array([1.0, 0.0, 0.0]) @ affine_matrix(angle=0.5 * math.pi) == pytest.approx([0.0, 1.0, 0.0])
    assert np.array([2.0, 3.0, 4.0]) @ affine_matrix(flip_y=True) == pytest.approx([2.0, -3.0, 4.0])


def test_jitter_has_its_deviation_and_an_end():
    scene = scene_of(20_000)
    moved = (Jitter(0.02)(scene, generator()).xyz - scene.xyz).astype(np.float64)
    assert moved.std() == pytest.approx(0.02, rel=0.03) and abs(moved).max() < 0.0601


def interpolated(xyz, field, granularity):
    """Trilinear, one point at a time."""
    nodes = np.array(field.shape[1:])
    moves = []
    for point in xyz.astype(np.float64):
        place = point / (2 * granularity) + (nodes - 1) / 2
        cell = np.floor(place).astype(int)
        total = np.zeros(3)
        for corner in itertools.product((0, 1), repeat=3):
            share = np.prod(np.where(corner, place - cell, 1 - (place - cell)))
            total += share * field[(slice(None), *(cell + corner))]
        moves.append(total)
    return np.array(moves)


@pytest.mark.parametrize("granularity", (6, 0.35))
def test_displacements_are_interpolated_in_the_blurred_noise(granularity):
    xyz = generator().uniform(-3 * granularity, 9 * granularity, (60, 3))
    noise = generator(1).standard_normal((3, *grid_shape(xyz, granularity)), dtype=np.float32)
    padded = np.pad(noise.astype(np.float64), [(0, 0), (2, 2), (2, 2), (2, 2)])
    inside = np.pad(np.ones_like(noise, np.float64), [(0, 0), (2, 2), (2, 2), (2, 2)])
    for axis in (1, 2, 3):
        for _ in range(2):  # zeros outside after each pass
            padded = inside * (padded + np.roll(padded, 1, axis) + np.roll(padded, -1, axis)) / 3
    blurred = padded[:, 2:-2, 2:-2, 2:-2]
    assert blur(noise) == pytest.approx(blurred, abs=1e-6)
    moved = displace(xyz, noise, granularity, 7.0)
    assert moved - xyz == pytest.approx(7.0 * interpolated(xyz, blurred, granularity), abs=1e-5)


def test_many_points_are_moved_as_the_same_points_alone():
    xyz = generator().uniform(0, 200, (40_000, 3)).astype(np.float32)
    noise = generator(1).standard_normal((3, *grid_shape(xyz, 6)), dtype=np.float32)
    moved = displace(xyz, noise, 6, 40.0)
    assert moved.dtype == np.float32
    some = [0, 16_383, 16_384, 39_999]
    assert np.array_equal(moved[some], displace(xyz[some], noise, 6, 40.0))


def test_elastic_distortion_draws_the_noise_of_its_grid():
    xyz = generator().uniform(-50, 100, (300, 3))
    noise = generator(5).standard_normal((3, *grid_shape(xyz, 20)), dtype=np.float32)
    assert np.array_equal(elastic_distortion(xyz, 20, 160.0, generator(5)), displace(xyz, noise, 20, 160.0))
    with pytest.raises(ValueError, match=r"noise has shape .* expected at least \(3, "):
        displace(xyz, noise[:, :, 1:], 20, 160.0)
    # far enough inside for the blur: the standard deviation of the documentation
    far = generator().uniform(-300, 300, (20_000, 3))
    moved = elastic_distortion(far, 3, 1.0, generator()) - far
    assert 0.06 < moved.std() < 0.12


def test_dropout_leaves_its_share_and_keeps_rows_together():
    scene = scene_of(20_000)
    kept = Dropout(0.3)(scene, generator())
    assert len(kept.xyz) / 20_000 == pytest.approx(0.7, abs=0.02)
    order = {tuple(row): position for position, row in enumerate(scene.xyz.tolist())}
    rows = [order[tuple(row)] for row in kept.xyz.tolist()]
    assert rows == sorted(rows)
    assert all(np.array_equal(a, b[rows]) for a, b in zip(kept[:4], scene[:4]))
    assert Dropout(1.0)(scene, generator()) is scene


def test_colors_move_around_what_they_were():
    scene = scene_of(20_000)
    moved = ColorJitter(deviation=5.0)(scene, generator()).rgb.astype(float) - scene.rgb
    assert moved.mean() == pytest.approx(0.0, abs=0.2) and moved.std() == pytest.approx(5.0, rel=0.05)
    shifted = ColorJitter(shift=20.0)(scene, generator()).rgb.astype(float) - scene.rgb
    assert shifted.std(axis=0).max() < 0.6 and 0 < abs(shifted.mean(axis=0)).max() <= 20


def test_bright_colors_stay_bytes():
    scene = scene_of()._replace(rgb=np.full((2000, 3), 250, np.uint8))
    assert ColorJitter(deviation=30.0)(scene, generator()).rgb.min() > 60  # no wrap around


def test_contrast_stretches_and_drop_takes_everything():
    scene = scene_of()
    spans = [np.ptp(ColorContrast(1.0)(scene, generator(seed)).rgb.astype(int), axis=0).min() for seed in range(20)]
    assert min(spans) >= np.ptp(scene.rgb.astype(int), axis=0).min() and max(spans) > 230
    assert np.unique(ColorDrop(1.0)(scene, generator()).rgb).tolist() == [128]
    for step in (ColorContrast(0.0), ColorDrop(0.0), Elastic(0.0), Dropout(0.5, 0.0)):
        assert step(scene, generator()) is scene


def test_a_crop_keeps_the_nearest_points_of_some_point_and_their_order():
    scene = scene_of()
    assert crop_to_budget(scene, 2000, generator()) is scene
    cropped = crop_to_budget(scene, 300, generator())
    assert [len(array) for array in cropped[:4]] == 4 * [300]
    found = np.flatnonzero((scene.xyz[:, None] == cropped.xyz[None]).all(axis=2).any(axis=1))
    assert np.array_equal(select(scene, found).xyz, cropped.xyz)
    spread = cropped.xyz[:, :2].astype(np.float64)
    centres = [point for point in spread if _is_centre(point, scene.xyz[:, :2], found)]
    assert centres
    others = crop_to_budget(scene, 300, generator(1))
    assert not np.array_equal(others.xyz, cropped.xyz)


def _is_centre(point, every, found):
    distance = np.linalg.norm(every - point, axis=1)
    return distance[found].max() <= np.delete(distance, found).min()


def test_two_scenes_in_one_keep_their_labels_apart():
    one, two = scene_of(100), scene_of(50, seed=1)
    both = mix(one, two)
    assert len(both.xyz) == 150 and both.name == "room+room"
    assert np.array_equal(both.semantic, np.concatenate([one.semantic, two.semantic]))
    assert both.instance.dtype == np.int16
    assert set(both.instance[:100]) & set(both.instance[100:]) == {-100}
    assert np.array_equal(both.instance[100:] == -100, two.instance == -100)
    for part in (both.xyz[:100], both.xyz[100:]):
        assert (part.min(axis=0) + part.max(axis=0))[:2] == pytest.approx([0, 0], abs=1e-5)
        assert part[:, 2].min() == 0
    bare = two._replace(instance=np.full(50, -100, np.int16))
    assert mix(bare, one).instance[50:].tolist() == one.instance.tolist()


def test_a_strength_builds_what_it_names_and_nothing_else():
    assert [type(step).__name__ for step in Strength().build().steps] == ["Affine"]
    full = Strength(0.5, math.pi, 0.1, (0.9, 1.1), 0.1, 0.01, 0.5, 0.2, 5.0, 10.0, 0.2, 0.1).build()
    assert len(full.steps) == 7 and isinstance(full, Augmentation)
    scene = scene_of()
    assert len(full(scene, generator()).xyz) <= len(scene.xyz)


@pytest.mark.parametrize(
    "options, message",
    (
        ({"flip": 1.5}, "flip is 1.5, expected a probability or share from 0 to 1"),
        ({"jitter_m": -1.0}, "jitter_m is -1.0, expected a number from 0 up"),
        ({"scale": (1.2, 0.8)}, "scale is"),
        ({"scale": (0.0, 1.0)}, "scale is"),
        ({"elastic": float("nan")}, "elastic is nan"),
    ),
)
def test_a_strength_outside_its_range_is_told(options, message):
    with pytest.raises(UserError, match=message):
        Strength(**options).build()
