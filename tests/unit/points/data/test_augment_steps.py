"""What single steps compute, against their formulas with the same random numbers."""

import math

import numpy as np
import pytest

from paddlevit_dist.points.data.augment import (
    AffineMap,
    ColorContrast,
    ColorNoise,
    CropToBudget,
    MatrixDistortion,
    PointCrop,
    PointDropout,
    RandomRotation,
    RandomScale,
    apply_matrix,
    mix,
    rotation,
    select,
    to_meters,
    transform_normals,
)
from paddlevit_dist.points.data.scene import IGNORED, NORMAL, Scene, find_floor
from paddlevit_dist.points.data.scene_store import read_scene, write_scene
from paddlevit_dist.points.instances.input import BoxCrop, ShiftToOrigin, VoxelPlacement


def draw_scene(points: int, seed: int = 0, **channels) -> Scene:
    generator = np.random.default_rng(seed)
    xyz = generator.uniform((-1, 2, 5), (3, 9, 6), (points, 3)).astype(np.float32)
    labels = generator.integers(0, 5, points).astype(np.int16)
    return Scene(
        xyz, generator.integers(0, 256, (points, 3), np.uint8), labels, labels % 3, f"s{seed}", channels=channels
    )


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_turn_about_an_axis_keeps_it_and_turns_the_next_one_toward_the_one_after(axis):
    matrix, (following, last) = rotation(axis, 0.3), [(axis + 1) % 3, (axis + 2) % 3]
    expected = np.zeros((3, 3))
    expected[axis, axis] = 1
    expected[following, [following, last]] = math.cos(0.3), math.sin(0.3)
    expected[last, [following, last]] = -math.sin(0.3), math.cos(0.3)
    np.testing.assert_allclose(matrix, expected, atol=1e-15)
    drawn = RandomRotation(axis, 2.0)(np.diag([1.0, 2.0, 4.0]), random(3))
    angle = 2.0 * random(3).uniform(-1, 1)
    np.testing.assert_allclose(drawn, np.diag([1.0, 2.0, 4.0]) @ rotation(axis, angle), atol=1e-15)


def test_factors_apply_in_their_order():
    steps = (RandomRotation(2, 1.0), RandomScale(2.0, 5.0), MatrixDistortion(0.1))
    generator = random(1)
    expected = rotation(2, generator.uniform(-1.0, 1.0)) * generator.uniform(2.0, 5.0)
    expected = expected + 0.1 * generator.standard_normal((3, 3))
    np.testing.assert_allclose(AffineMap(steps).matrix(random(1)), expected, rtol=1e-12)
    factors = [RandomScale(2.0, 5.0)(np.eye(3), random(seed))[1, 1] for seed in range(100)]
    assert 2.0 <= min(factors) < 2.2 and 4.8 < max(factors) <= 5.0


def test_products_without_blas_are_products():
    xyz, matrix = random().normal(size=(40, 3)), random(1).normal(size=(3, 3))
    np.testing.assert_allclose(apply_matrix(xyz, matrix), xyz @ matrix, rtol=1e-12, atol=1e-12)


def test_normals_stay_perpendicular_to_stretched_surfaces_and_keep_their_lengths():
    generator = random(2)
    tangents, others = generator.normal(size=(2, 30, 3))
    normals = np.cross(tangents, others)
    normals *= generator.uniform(0.5, 2.0, (30, 1)) / np.linalg.norm(normals, axis=1, keepdims=True)
    normals[4] = 0.0  # a point without a normal
    matrix = np.array([[2.0, 0.3, 0.0], [0.0, 1.0, -0.4], [0.1, 0.0, 0.5]])
    scene = draw_scene(30, **{NORMAL: normals.astype(np.float32), "intensity": np.ones((30, 1), np.float32)})
    changed = transform_normals(scene, matrix)
    found = changed.channels[NORMAL]
    assert np.abs((found * (tangents @ matrix)).sum(axis=1)).max() < 1e-5
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(normals, axis=1), rtol=1e-5)
    assert found.dtype == np.float32 and (found[4] == 0).all() and changed.channels["intensity"] is not None
    assert (np.einsum("pi,pi->p", found, normals @ np.linalg.inv(matrix).T)[np.arange(30) != 4] > 0).all()
    assert transform_normals(draw_scene(3), matrix).channels == {}


@pytest.mark.parametrize("centered", [True, False])
def test_a_map_turns_normals_with_the_points(centered):
    scene = draw_scene(50, **{NORMAL: np.tile(np.float32([[1, 0, 0]]), (50, 1))})
    turned = AffineMap((RandomRotation(2, 3.0),), centered=centered)(scene, random(5))
    angle = 3.0 * random(5).uniform(-1, 1)
    expected = np.tile([[math.cos(angle), math.sin(angle), 0.0]], (50, 1))
    np.testing.assert_allclose(turned.channels[NORMAL], expected, atol=1e-6)
    lowest, highest = scene.xyz.min(axis=0), scene.xyz.max(axis=0)
    middle = np.array([*(lowest + highest)[:2] / 2, lowest[2]]) if centered else np.zeros(3)
    np.testing.assert_allclose(turned.xyz, (scene.xyz - middle) @ rotation(2, angle) + middle, atol=1e-5)


def test_units_are_converted_unless_they_are_meters():
    scene = draw_scene(9)
    assert to_meters(1.0) == ()
    (step,) = to_meters(0.01)
    np.testing.assert_allclose(step(scene, None).xyz, scene.xyz / 100, rtol=1e-6)


def test_color_noise_is_one_shift_of_all_points():
    scene = draw_scene(20)._replace(rgb=random().random((20, 3), np.float32))
    shift = random(4).standard_normal(3) * 0.1
    np.testing.assert_allclose(ColorNoise(0.1)(scene, random(4)).rgb - scene.rgb, np.tile(shift, (20, 1)), atol=1e-6)
    assert ColorNoise(0.1)(scene, random(4)).rgb.dtype == np.float32


def test_contrast_blends_colors_with_stretched_ones():
    rgb = np.array([[10, 200, 90], [60, 250, 90], [110, 225, 91]], np.uint8)
    changed = ColorContrast()(draw_scene(3)._replace(rgb=rgb), random(7)).rgb
    share, whole = random(7).random(), np.array([[0, 0, 0], [127.5, 255, 0], [255, 127.5, 255]])
    np.testing.assert_array_equal(changed, np.rint((1 - share) * rgb + share * whole))
    black = ColorContrast()(draw_scene(3)._replace(rgb=np.full((3, 3), 90, np.uint8)), random(7)).rgb
    np.testing.assert_array_equal(black, np.full((3, 3), np.rint((1 - share) * 90)))


@pytest.mark.parametrize("shape", ["sphere", "block"])
def test_a_crop_has_all_points_around_a_labeled_one(shape):
    scene = draw_scene(300)
    semantic = np.where(np.arange(300) % 7 == 5, scene.semantic, IGNORED)
    scene = scene._replace(semantic=semantic.astype(np.int16))
    crop = PointCrop(shape, 2.0)
    for seed in range(10):
        scene = scene._replace(xyz=np.rint(scene.xyz)) if seed == 5 else scene  # with points at the very border
        labeled = np.flatnonzero(semantic != IGNORED)
        center = scene.xyz[labeled[random(seed).integers(len(labeled))]].astype(np.float64)
        away = np.abs(scene.xyz - center)
        near = (away**2).sum(axis=1) <= 1.0 if shape == "sphere" else (away[:, :2] <= 1.0).all(axis=1)
        np.testing.assert_array_equal(crop(scene, random(seed)).xyz, scene.xyz[near], strict=True)
    two = select(scene._replace(semantic=np.full(300, IGNORED, np.int16)), np.array([0, 1]))
    two = two._replace(xyz=np.float32([[0, 0, 0], [9, 9, 9]]))  # without labels, around any
    assert {float(crop(two, random(seed)).xyz[0, 0]) for seed in range(20)} == {0.0, 9.0}
    assert crop(draw_scene(0), random()).xyz.shape == (0, 3)


@pytest.mark.parametrize("shape", ["sphere", "block"])
def test_heights_are_from_the_lowest_point_of_a_block_and_of_the_scene_around_a_sphere(shape):
    scene = draw_scene(300)
    cropped = PointCrop(shape, 1.0)(scene, random(3))
    lowest = (cropped if shape == "block" else scene).xyz[:, 2].min()
    assert 5 < scene.xyz[:, 2].min() < cropped.xyz[:, 2].min()
    heights = np.unique(cropped.xyz[:, 2].astype(np.float64) - find_floor(cropped))
    np.testing.assert_allclose(heights, np.unique(cropped.xyz[:, 2].astype(np.float64) - lowest), atol=1e-6)


def test_a_selection_has_channels_and_labels_of_its_points():
    scene = draw_scene(6, intensity=np.arange(6, dtype=np.float32)[:, None])
    chosen = select(scene, np.array([4, 1]))
    assert chosen.channels["intensity"].ravel().tolist() == [4, 1] and chosen.name == scene.name
    np.testing.assert_array_equal(chosen.semantic, scene.semantic[[4, 1]], strict=True)
    np.testing.assert_array_equal(chosen.rgb, scene.rgb[[4, 1]], strict=True)


@pytest.mark.parametrize("skipped", [(), (0, 7, 300)])
@pytest.mark.parametrize(
    "steps",
    [
        [PointCrop("sphere", 3.0)],
        [PointCrop("block", 3.0)],
        [CropToBudget(60)],
        [PointDropout(0.5)],
        [VoxelPlacement(20.0, (0.0, 255.0)), ShiftToOrigin(), BoxCrop(60, 512)],
    ],
    ids=["sphere", "block", "budget", "dropout", "box"],
)
def test_points_of_a_stored_scene_are_selected(steps, skipped, tmp_path):
    drawn = draw_scene(400, intensity=np.arange(400, dtype=np.float32)[:, None])
    write_scene(tmp_path / "s0.scene", drawn._replace(skipped_rows=skipped))
    scene, generator = read_scene(tmp_path / "s0.scene", "s0"), random()
    for step in steps:
        scene = step(scene, generator)
    rows = scene.channels["intensity"].ravel().astype(int)
    assert 0 < len(rows) < 400 and (np.diff(rows) > 0).all()
    for name in ("rgb", "semantic", "instance"):
        np.testing.assert_array_equal(getattr(scene, name), getattr(drawn, name)[rows])
    np.testing.assert_array_equal(getattr(scene, "positions", scene.xyz), drawn.xyz[rows], strict=True)


def test_a_mix_has_the_channels_that_both_scenes_have():
    one = draw_scene(3, **{"intensity": np.ones((3, 1)), NORMAL: np.ones((3, 3))})
    other = draw_scene(2, 1, intensity=np.zeros((2, 1)), ring=np.ones((2, 1)))
    both = mix(one, other)
    assert list(both.channels) == ["intensity"] and both.channels["intensity"].ravel().tolist() == [1, 1, 1, 0, 0]
    np.testing.assert_array_equal(both.rgb, np.concatenate([one.rgb, other.rgb]), strict=True)
    empty = mix(draw_scene(0), other)
    assert empty.instance.tolist() == other.instance.tolist() and both.name == "s0+s1"
    assert both.instance[3:].tolist() == (other.instance + one.instance.max() + 1).tolist()
    middle = np.array([*(other.xyz.min(axis=0) + other.xyz.max(axis=0))[:2] / 2, other.xyz[:, 2].min()])
    np.testing.assert_allclose(empty.xyz, other.xyz - middle, atol=1e-6)
