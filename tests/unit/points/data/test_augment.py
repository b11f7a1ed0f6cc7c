"""Augmentation of scenes: what changes, by how much, and what must not."""

import itertools
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from support.samples.displaced import displace

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.points.data.augment import (
    AffineMap,
    ColorContrast,
    CropToBudget,
    ElasticDistortion,
    MatrixDistortion,
    MetersConversion,
    Mix3D,
    PointColorJitter,
    PointCrop,
    PointDropout,
    PointJitter,
    RandomApply,
    RandomFlip,
    RandomRotation,
    RandomScale,
    apply,
    mix,
    rotation,
    select,
)
from paddlevit_dist.points.data.elastic import blur, elastic_distortion, grid_shape
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.segmentation.task import training_steps

TURNED = AffineMap((RandomFlip(0.5, axes=2), RandomRotation(2, math.pi)))
EVERYTHING = (
    MatrixDistortion(0.1),
    RandomFlip(0.5, axes=2),
    RandomRotation(0, 0.1),
    RandomRotation(1, 0.1),
    RandomRotation(2, math.pi),
    RandomScale(0.8, 1.2),
)
PASSES = ((0.1, 0.4), (0.4, 1.6))
ALL = [
    AffineMap(EVERYTHING),
    AffineMap(EVERYTHING, centered=False),
    PointJitter(0.01),
    ElasticDistortion(PASSES),
    PointDropout(0.3),
    PointColorJitter(8.0, 20.0),
    ColorContrast(),
]


def make_scene(points=2000, seed=0):
    generator = np.random.default_rng(seed)
    return Scene(
        generator.uniform((0, 0, 0), (4, 3, 2), (points, 3)).astype(np.float32),
        generator.integers(40, 200, (points, 3), dtype=np.uint8),
        generator.integers(0, 20, points).astype(np.int16),
        np.where(np.arange(points) % 3 == 0, -100, np.arange(points) % 7).astype(np.int16),
        "room",
    )


def make_gray(scene, generator):
    return scene._replace(rgb=np.full_like(scene.rgb, 128))


def generator(seed=0):
    return np.random.default_rng(seed)


def distances(xyz):
    return np.linalg.norm(xyz[::50, None].astype(np.float64) - xyz[None, ::50], axis=-1)


@pytest.mark.parametrize("augmentation", ALL, ids=lambda step: type(step).__name__)
def test_an_augmentation_keeps_dtypes_follows_its_generator_and_leaves_its_input_alone(augmentation):
    scene = make_scene()
    for array in scene[:4]:
        array.setflags(write=False)  # as arrays that are views of a file
    once, again, other = (augmentation(scene, generator(seed)) for seed in (1, 1, 2))
    for a, b, c in zip(once[:4], again[:4], scene[:4]):
        assert np.array_equal(a, b) and a.dtype == c.dtype and a.shape[1:] == c.shape[1:]
    assert len({len(array) for array in once[:4]}) == 1
    changed = any(not np.array_equal(a, b) for a, b in zip(once[:4], scene[:4]))
    differs = any(not np.array_equal(a, b) for a, b in zip(once[:4], other[:4]))
    assert changed and differs
    assert pickle.loads(pickle.dumps(augmentation)) == augmentation


@pytest.mark.parametrize("augmentation", ALL, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("points", (0, 1))
def test_an_augmentation_does_with_hardly_any_point(augmentation, points):
    assert len(augmentation(make_scene(points), generator()).xyz) == points


def test_rotation_and_flip_keep_distances_and_heights():
    scene = make_scene()
    turned = TURNED(scene, generator(3))
    assert distances(turned.xyz) == pytest.approx(distances(scene.xyz), abs=1e-4)
    assert turned.xyz[:, 2] == pytest.approx(scene.xyz[:, 2], abs=1e-5)


def test_all_directions_and_both_mirror_images_occur():
    matrices = np.array([TURNED.matrix(generator(seed)) for seed in range(400)])
    determinants = np.linalg.det(matrices)
    assert abs(determinants) == pytest.approx(np.ones(400)) and 150 < (determinants > 0).sum() < 250
    angles = np.arctan2(matrices[:, 0, 1], matrices[:, 0, 0])
    assert np.histogram(angles, 8, (-math.pi, math.pi))[0].min() > 25


def test_the_angle_turns_from_x_toward_y():
    assert np.array([1.0, 0.0, 0.0]) @ rotation(2, 0.5 * math.pi) == pytest.approx([0.0, 1.0, 0.0])
    for axes, mirrored in ((1, [-2.0, 3.0, 4.0]), (2, [-2.0, -3.0, 4.0])):
        assert np.array([2.0, 3.0, 4.0]) @ AffineMap((RandomFlip(1.0, axes),)).matrix(generator()) == pytest.approx(
            mirrored
        )


def test_the_middle_stays_or_the_origin_does():
    scene = make_scene()
    for step in (AffineMap((RandomScale(2.0, 2.0),)), AffineMap((RandomScale(2.0, 2.0),), centered=False)):
        moved = step(scene, generator()).xyz
        assert np.ptp(moved, axis=0) == pytest.approx(2 * np.ptp(scene.xyz, axis=0), abs=1e-5)
        if step.centered:
            assert (moved.min(axis=0) + moved.max(axis=0))[:2] == pytest.approx(
                (scene.xyz.min(axis=0) + scene.xyz.max(axis=0))[:2], abs=1e-5
            )
            assert moved[:, 2].min() == pytest.approx(scene.xyz[:, 2].min(), abs=1e-5)
        else:
            assert moved == pytest.approx(2 * scene.xyz, abs=1e-5)


def test_one_way_a_turn_goes_all_around():
    angles = [RandomRotation(2, 2 * math.pi, both_directions=False)(np.eye(3), generator(seed)) for seed in range(200)]
    assert np.histogram([math.atan2(m[0, 1], m[0, 0]) for m in angles], 4, (-math.pi, math.pi))[0].min() > 30
    both = [
        math.atan2(m[0, 1], m[0, 0])
        for m in (RandomRotation(2, 1.0)(np.eye(3), generator(seed)) for seed in range(200))
    ]
    assert min(both) < -0.9 and max(both) > 0.9 and max(np.abs(both)) <= 1.0


def test_jitter_has_its_deviation_and_an_end():
    scene = make_scene(20_000)
    moved = (PointJitter(0.02)(scene, generator()).xyz - scene.xyz).astype(np.float64)
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
    moved = displace(xyz, noise, granularity, 7.0)
    assert moved - xyz == pytest.approx(7.0 * interpolated(xyz, blurred, granularity), abs=1e-5)


def test_elastic_distortion_draws_the_noise_of_its_grid():
    xyz = generator().uniform(-50, 100, (300, 3))
    middle = (xyz.min(axis=0) + xyz.max(axis=0)) / 2
    nodes = grid_shape(xyz - middle, 20)
    noise = generator(5).standard_normal((nodes[0], 3, *nodes[1:]), dtype=np.float32).swapaxes(0, 1)
    expected = displace(xyz - middle, noise, 20, 160.0) + middle
    np.testing.assert_array_equal(elastic_distortion(xyz, 20, 160.0, generator(5)), expected, strict=True)
    with pytest.raises(ValueError, match=r"noise has shape .* expected at least \(3, "):
        displace(xyz, noise[:, :, 1:], 20, 160.0)
    # far enough inside for the blur: the standard deviation of the documentation
    far = generator().uniform(-300, 300, (20_000, 3))
    moved = elastic_distortion(far, 3, 1.0, generator()) - far
    assert 0.06 < moved.std() < 0.12


def test_a_field_used_in_slabs_is_that_of_the_whole_grid():
    xyz = generator().uniform((-5000, -20, -9), (5000, 20, 9), (300, 3))  # slabs hold half a million nodes
    xyz[100:, 0] = xyz[100:, 0] / 10 + 3000
    noise = generator(1).standard_normal((3, *grid_shape(xyz, 1)), dtype=np.float32)
    expected = 7.0 * interpolated(xyz, blur(noise), 1)  # with NumPy 1 in float32
    assert noise[0].size > 1_000_000 and displace(xyz, noise, 1, 7.0) - xyz == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("origin", [0.0, 5000.0])
def test_a_field_takes_the_memory_of_the_points_wherever_they_are(origin):
    xyz = generator().uniform(0, (400, 400, 3), (1000, 3)) + origin
    tracemalloc.start()
    moved = elastic_distortion(xyz, 0.4, 1.6, generator())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6 and 0.02 < (moved - xyz).std() < 0.3


def test_dropout_leaves_its_share_and_keeps_rows_together():
    scene = make_scene(20_000)
    kept = PointDropout(0.3)(scene, generator())
    assert len(kept.xyz) / 20_000 == pytest.approx(0.7, abs=0.02)
    order = {tuple(row): position for position, row in enumerate(scene.xyz.tolist())}
    rows = [order[tuple(row)] for row in kept.xyz.tolist()]
    assert rows == sorted(rows)
    assert all(np.array_equal(a, b[rows]) for a, b in zip(kept[:4], scene[:4]))
    assert PointDropout(1.0)(scene, generator()) is scene


def test_colors_move_around_what_they_were():
    scene = make_scene(20_000)
    moved = PointColorJitter(deviation=5.0, shift=0.0)(scene, generator()).rgb.astype(float) - scene.rgb
    assert moved.mean() == pytest.approx(0.0, abs=0.2) and moved.std() == pytest.approx(5.0, rel=0.05)
    shifted = PointColorJitter(deviation=0.0, shift=20.0)(scene, generator()).rgb.astype(float) - scene.rgb
    assert shifted.std(axis=0).max() < 0.6 and 0 < abs(shifted.mean(axis=0)).max() <= 20


def test_bright_colors_stay_bytes():
    scene = make_scene()._replace(rgb=np.full((2000, 3), 250, np.uint8))
    assert PointColorJitter(deviation=30.0, shift=0.0)(scene, generator()).rgb.min() > 60  # no wrap around


def test_contrast_stretches():
    scene = make_scene()
    spans = [np.ptp(ColorContrast()(scene, generator(seed)).rgb.astype(int), axis=0).min() for seed in range(20)]
    assert min(spans) >= np.ptp(scene.rgb.astype(int), axis=0).min() and max(spans) > 230


def test_sometimes_is_as_often_as_it_says():
    scene = make_scene(50)
    for probability, least, most in ((0.0, 0, 0), (0.3, 60, 120), (1.0, 300, 300)):
        step = RandomApply(probability, make_gray)
        changed = [step(scene, generator(seed)) is not scene for seed in range(300)]
        assert least <= sum(changed) <= most


def test_a_crop_keeps_the_nearest_points_of_some_point_and_their_order():
    scene = make_scene()
    assert CropToBudget(2000)(scene, generator()) is scene
    cropped = CropToBudget(300)(scene, generator())
    assert [len(array) for array in cropped[:4]] == 4 * [300]
    found = np.flatnonzero((scene.xyz[:, None] == cropped.xyz[None]).all(axis=2).any(axis=1))
    np.testing.assert_array_equal(select(scene, found).xyz, cropped.xyz, strict=True)
    spread = cropped.xyz[:, :2].astype(np.float64)
    centers = [point for point in spread if is_center(point, scene.xyz[:, :2], found)]
    assert centers
    others = CropToBudget(300)(scene, generator(1))
    assert not np.array_equal(others.xyz, cropped.xyz)


def is_center(point, every, found):
    distance = np.linalg.norm(every - point, axis=1)
    return distance[found].max() <= np.delete(distance, found).min()


def test_two_scenes_in_one_keep_their_labels_apart():
    one, two = make_scene(100), make_scene(50, seed=1)
    both = mix(one, two)
    assert len(both.xyz) == 150 and both.name == "room+room"
    np.testing.assert_array_equal(both.semantic, np.concatenate([one.semantic, two.semantic]), strict=True)
    assert both.instance.dtype == np.int16
    assert set(both.instance[:100]) & set(both.instance[100:]) == {-100}
    np.testing.assert_array_equal(both.instance[100:] == -100, two.instance == -100, strict=True)
    np.testing.assert_array_equal(
        both.xyz[:100], one.xyz, strict=True
    )  # stays, so that the feature xyz means the same as in evaluation
    boxes = [part.min(axis=0) + part.max(axis=0) for part in (both.xyz[:100], both.xyz[100:])]
    assert boxes[1][:2] == pytest.approx(boxes[0][:2], abs=1e-5)
    assert both.xyz[100:, 2].min() == pytest.approx(one.xyz[:, 2].min(), abs=1e-6) == both.floor
    bare = two._replace(instance=np.full(50, -100, np.int16))
    assert mix(bare, one).instance[50:].tolist() == one.instance.tolist()


def test_the_other_scene_of_a_mix_is_augmented_and_its_probability_changes_nothing_else():
    class Scenes(list):
        read = list.__getitem__

    scene, others = make_scene(100), Scenes(make_scene(50, seed) for seed in (1, 2, 3))
    never, always = (Mix3D(others, (make_gray,), probability) for probability in (0.0, 1.0))
    one, other = generator(4), generator(4)
    assert never(scene, one) is scene
    both = always(scene, other)
    assert np.array_equal(both.rgb[:100], scene.rgb) and np.unique(both.rgb[100:]).tolist() == [128]
    assert any(np.array_equal(both.semantic[100:], partner.semantic) for partner in others)
    assert one.random() == other.random()


AUGMENT = "POINTS.AUGMENT."
STRONGEST = ("ELASTIC", "1", "JITTER_M", "0.01", "DROPOUT", "0.2", "COLOR_CONTRAST", "1", "COLOR_SHIFT", "9")


def make_steps(*words):
    """The steps of a configuration, with words behind POINTS.AUGMENT."""
    named = [AUGMENT + word if place % 2 == 0 else word for place, word in enumerate(words)]
    words = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", "-dataset=synthetic_rooms", *named]
    return training_steps(settings.load([*words, "POINTS.MAX_POINTS", "150"]).values.POINTS, [])


def test_the_keys_build_what_they_name_and_nothing_else():
    assert [type(step).__name__ for step in make_steps()] == ["AffineMap", "Mix3D", "CropToBudget"]
    steps = make_steps(*STRONGEST)
    done = [type(step.step if isinstance(step, RandomApply) else step).__name__ for step in steps]
    expected = [
        "AffineMap",
        "ElasticDistortion",
        "PointJitter",
        "PointDropout",
        "ColorContrast",
        "PointColorJitter",
        "Mix3D",
    ]
    assert done == [*expected, "CropToBudget"]
    scene = make_scene()
    changed = apply(steps[:-2], scene, generator())
    assert len(changed.xyz) <= len(scene.xyz) and len(steps[-1](changed, generator()).xyz) == 150


def test_every_number_of_the_keys_reaches_its_step():
    numbers = {"FLIP": 0.3, "ROTATION_DEGREES": 90, "TILT_DEGREES": 6, "SCALE": "[0.7, 1.4]", "ELASTIC": 0.6}
    numbers |= {"JITTER_M": 0.02, "DROPOUT": 0.25, "COLOR_CONTRAST": 0.35, "COLOR_JITTER": 7, "COLOR_SHIFT": 11}
    words = [text for name, number in numbers.items() for text in (AUGMENT + name, str(number))]
    words += ["POINTS.CROP", "block", "POINTS.CROP_SIZE_M", "3.5", "POINTS.MIX_PROB", "0.8", "POINTS.MAX_POINTS", "150"]
    words += ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", "-dataset=synthetic_rooms"]
    tilts = [RandomRotation(axis, math.radians(6)) for axis in (0, 1)]
    factors = (
        MatrixDistortion(0.0),
        RandomFlip(0.3, axes=2),
        *tilts,
        RandomRotation(2, math.pi / 2),
        RandomScale(0.7, 1.4),
    )
    changes = (
        MetersConversion(0.01),
        PointCrop("block", 3.5),
        AffineMap(factors),
        RandomApply(0.6, ElasticDistortion(PASSES)),
        PointJitter(0.02),
        RandomApply(0.5, PointDropout(0.25)),
        RandomApply(0.35, ColorContrast()),
        PointColorJitter(7, 11),
    )
    dataset = object()
    steps = training_steps(settings.load(words).values.POINTS, dataset, 0.01)
    assert steps == (*changes, Mix3D(dataset, changes, 0.8), CropToBudget(150))


def test_noise_selections_and_partners_are_those_of_the_same_generator():
    scene, draw = make_scene(300), generator(6)
    jittered = scene.xyz + np.clip(draw.standard_normal((300, 3), dtype=np.float32), -3, 3) * 0.05
    np.testing.assert_allclose(PointJitter(0.05)(scene, generator(6)).xyz, jittered, atol=1e-6)
    kept = generator(6).random(300) >= 0.4
    np.testing.assert_array_equal(PointDropout(0.4)(scene, generator(6)).xyz, scene.xyz[kept], strict=True)
    draw = generator(6)
    shift, noise = draw.uniform(-30, 30, 3), draw.standard_normal((300, 3), dtype=np.float32)
    colors = np.clip(np.rint(scene.rgb + 40 * noise + shift), 0, 255)
    found = PointColorJitter(40.0, 30.0)(scene, generator(6)).rgb
    assert found.dtype == np.uint8 and (np.abs(found - colors) > 0).mean() < 0.01 and np.abs(found - colors).max() <= 1
    center = scene.xyz[generator(6).integers(300), :2].astype(np.float64)
    nearest = np.sort(np.argsort(((scene.xyz[:, :2] - center) ** 2).sum(axis=1), kind="stable")[:70])
    np.testing.assert_array_equal(CropToBudget(70)(scene, generator(6)).xyz, scene.xyz[nearest], strict=True)

    class Scenes(list):
        read = list.__getitem__

    others = Scenes(make_scene(20 + seed, seed) for seed in range(9))
    for seed in range(6):
        draw = generator(seed)
        is_mixed, partner = draw.random() < 0.6, others[int(draw.integers(9))]
        expected = mix(scene, PointJitter(0.1)(partner, draw)) if is_mixed else scene
        found = Mix3D(others, (PointJitter(0.1),), 0.6)(scene, generator(seed))
        assert all(np.array_equal(one, other) for one, other in zip(found[:4], expected[:4]))


@pytest.mark.parametrize(
    "words, message",
    (
        (("FLIP", "1.5"), "POINTS.AUGMENT.FLIP"),
        (("JITTER_M", "-1"), "POINTS.AUGMENT.JITTER_M"),
        (("SCALE", "[1.2, 0.8]"), "POINTS.AUGMENT.SCALE .*expected the smaller factor first"),
        (("SCALE", "[0, 1]"), "POINTS.AUGMENT.SCALE"),
        (("ELASTIC", "nan"), "POINTS.AUGMENT.ELASTIC"),
    ),
)
def test_a_key_outside_its_range_is_told(words, message):
    with pytest.raises(UserError, match=message):
        make_steps(*words)


def test_color_shifts_of_many_seeds_have_both_signs_and_differ_by_channel():
    scene = make_scene(5)._replace(rgb=np.full((5, 3), 120, np.uint8))
    jitter = PointColorJitter(deviation=0.0, shift=20.0)
    shifts = np.array([jitter(scene, np.random.default_rng(seed)).rgb[0] - 120.0 for seed in range(300)])
    assert np.abs(shifts).max() <= 20 and shifts.min() < -17 and shifts.max() > 17
    assert np.abs(shifts.mean(axis=0)).max() < 3  # five deviations of the mean
    assert np.abs(np.corrcoef(shifts.T) - np.eye(3)).max() < 0.25
