"""Training crops against a second implementation of all draws, with SciPy's rotations and interpolation."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.intensities import IntensityConfig
from paddlevit_dist.volumes.samples import (
    AugmentationConfig,
    CropMap,
    VolumeSamples,
    blur,
    coarsen,
    cut,
    cut_labels,
)
from paddlevit_dist.volumes.segmentation.dataset import LabelMap, LabelSource
from paddlevit_dist.volumes.segmentation.samples import HOST, SegmentedSamples, VolumeRecord
from paddlevit_dist.volumes.store import DecodedVolume

SPACING = np.array([3.0, 2.0, 1.5])  # depth, height, width
SHAPE, SIZE = (12, 17, 20), (6, 9, 8)
POINTS = np.array([[6.0, 7.5, 4.0], [np.nan] * 3, [2.0, 12.0, 15.0], [9.0, 3.0, 11.0]])
EXCHANGED = [3, 1, 2, 0]
GEOMETRY = VolumeGeometry(SHAPE, np.diag([*SPACING[::-1], 1.0]))
CHANNELS = [
    DecodedVolume(np.random.default_rng(number).normal(20 * number, 9, SHAPE).astype(np.float32), GEOMETRY, window)
    for number, window in enumerate(((-15.0, 12.0), (0.0, 45.0)))
]
LABELS = LabelMap.from_array(
    np.random.default_rng(9).choice(4, SHAPE, p=[0.9, 0.07, 0, 0.03]).astype(np.uint8), GEOMETRY
)
FEW = {"intensity_jitter": 0.2, "noise": 0.1, "gamma": 0.7}
MANY = {**FEW, "rotation_degrees": 25.0, "scale": 0.3, "blur": 0.5, "low_resolution": 0.5}


def draw_affine(draw, options):
    """Rotations in degrees about depth, height and width, one after the other, in the world; then a scale."""
    angles = draw.uniform(-1, 1, 3) * options.get("rotation_degrees", 0)
    scale = 1 + draw.uniform(-1, 1) * options.get("scale", 0)
    turn = Rotation.from_euler("xyz", angles * (1, -1, 1), degrees=True).as_matrix()  # height turns back
    return np.diag(1 / SPACING) @ turn @ np.diag(SPACING) * scale


def draw_anywhere(draw):
    low, high = (np.array(SIZE) - 1) / 2, np.array(SHAPE) - (np.array(SIZE) + 1) / 2
    return draw.uniform(low, high), low, high


def find_places(center, matrix):
    """Positions of the crop's voxels in the volume, (3, depth, height, width)."""
    voxels = np.indices(SIZE) - (np.array(SIZE).reshape(3, 1, 1, 1) - 1) / 2
    return center.reshape(3, 1, 1, 1) + np.einsum("ij,j...->i...", matrix, voxels)


def vary(values, draw, options):
    contrast, brightness = draw.uniform(-1, 1, 2) * options["intensity_jitter"]
    values = values * (1 + contrast) + brightness
    values = values + draw.random() * options["noise"] * draw.standard_normal(SIZE, dtype=np.float32)
    if "blur" in options and draw.random() < options["blur"]:
        values = blur(values, draw.uniform(0.5, 1))
    if "low_resolution" in options and draw.random() < options["low_resolution"]:
        values = coarsen(values, draw.uniform(0.5, 1))
    if draw.random() < options["gamma"]:
        lowers = draw.random() < 0.5
        exponent = draw.uniform(0.7, 1) if lowers else draw.uniform(1, 1.5)
        sign = -1 if draw.random() < 0.25 else 1
        powers = ((sign * values - (sign * values).min()) / np.ptp(values)) ** exponent
        values = sign * (powers - powers.mean()) / powers.std() * values.std() + values.mean()
    return values


@pytest.mark.parametrize("options", [FEW, MANY], ids=["on the grid", "turned"])
def test_crops_around_landmarks(options):
    dataset = SimpleNamespace(read=lambda index: (CHANNELS[0], POINTS.copy()))
    samples = VolumeSamples(dataset, SIZE, AugmentationConfig(flip=0.4, **options), EXCHANGED, None)
    for seed in range(12):
        found, draw = samples.sample(0, np.random.default_rng(seed)), np.random.default_rng(seed)
        matrix = draw_affine(draw, options)
        is_flipped = draw.random() < 0.4
        if is_flipped:
            matrix[:, 2] *= -1
        center, low, high = draw_anywhere(draw)
        is_near, choice, offset = draw.random() < 0.5, draw.random(), draw.uniform(-0.3, 0.3, 3) * SIZE
        if is_near:
            center = POINTS[[0, 2, 3][int(choice * 3)]] + offset
        center = np.clip(center, low, high)
        if options is FEW:
            center = np.floor(center) + (0.5, 0.0, 0.5)  # sizes are even, odd, even
        places = find_places(center, matrix)
        values = map_coordinates(CHANNELS[0].array, places, order=1, mode="grid-constant", cval=-15.0)
        volume = vary((values + 15.0) / 27.0, draw, options)
        np.testing.assert_allclose(found["volume"], volume[None], atol=2e-4, err_msg=str(seed))
        points = np.linalg.solve(matrix, (POINTS - center).T).T + (np.array(SIZE) - 1) / 2
        points = points[EXCHANGED] if is_flipped else points
        np.testing.assert_allclose(found["points"], points, atol=1e-4, err_msg=str(seed))
        assert found["volume"].dtype == found["points"].dtype == np.float32


NO_CLASSES = LabelMap.from_array(np.zeros(SHAPE, np.uint8), GEOMETRY)


@pytest.mark.parametrize(
    ("options", "labels"), [(FEW, LABELS), (MANY, LABELS), (FEW, NO_CLASSES)], ids=["on the grid", "turned", "empty"]
)
def test_crops_of_two_channels_around_voxels_of_classes(options, labels):
    dataset = SimpleNamespace(read=lambda index: (CHANNELS, labels))
    config = IntensityConfig(("percentiles", "none"))
    samples = SegmentedSamples(dataset, config, SIZE, AugmentationConfig(**options), 0.6, [0, 2])
    classes = [np.argwhere(labels.array == label) for label in (1, 3) if labels is LABELS]
    for seed in range(12):
        found, draw = samples.sample(0, np.random.default_rng(seed)), np.random.default_rng(seed)
        matrix = draw_affine(draw, options)
        for axis in (0, 2):
            matrix[:, axis] *= -1 if draw.random() < 0.5 else 1
        center, low, high = draw_anywhere(draw)
        if draw.random() < 0.6 and classes:
            voxels = classes[draw.integers(2)]
            center = voxels[draw.integers(len(voxels))] + draw.uniform(-0.25, 0.25, 3) * SIZE
        center = np.clip(center, low, high)
        if options is FEW:
            center = np.floor(center) + (0.5, 0.0, 0.5)  # sizes are even, odd, even
        places = find_places(center, matrix)
        for number, (decoded, zero, unit) in enumerate(zip(CHANNELS, (-15.0, 0.0), (27.0, 1.0))):
            values = map_coordinates(decoded.array, places, order=1, mode="grid-constant", cval=zero)
            volume = vary((values - zero) / unit, draw, options)  # each channel by itself
            np.testing.assert_allclose(found["volume"][number], volume, atol=2e-4 * unit, err_msg=str(seed))
        nearest = np.rint(places).astype(int)
        inside = ((nearest >= 0) & (nearest < np.reshape(SHAPE, (3, 1, 1, 1)))).all(axis=0)
        expected = labels.array[tuple(np.where(inside, nearest, 0))] * inside
        np.testing.assert_array_equal(found["labels"], expected.astype(np.uint8), strict=True)


def test_a_whole_volume_without_labels_has_none_and_its_stored_steps():
    """Of a file whose depth is the world's y, its height x and its width z, downward, and whose y is tilted."""
    affine = np.array([[0, 1.0, 0, 0], [0, 0, 1.5, 0], [-4.0, 0, 0.5, 0], [0, 0, 0, 1]])
    dataset = SimpleNamespace(
        read=lambda index: (CHANNELS, None),
        stored_labels=lambda index: None,
        source=lambda index: LabelSource("a.nii", VolumeGeometry((5, 8, 6), affine)),
    )
    sample = SegmentedSamples(dataset, IntensityConfig(("percentiles", "none"))).sample(3, np.random.default_rng(0))
    np.testing.assert_array_equal(sample["labels"], np.zeros(0, np.uint8), strict=True)
    scaled = (CHANNELS[0].array + np.float32(15)) / np.float32(27)
    np.testing.assert_allclose(sample["volume"], np.stack([scaled, CHANNELS[1].array]), rtol=1e-5, atol=1e-6)
    steps = ((0.0, 0.0, 4.0), (0.0, 1.5, 0.5), (1.0, 0.0, 0.0))
    assert sample[HOST] == VolumeRecord(3, (6, 5, 8), steps, (3.0, 2.0, 1.5))


@pytest.mark.parametrize(
    ("center", "matrix"),
    [
        ((4.0, 5.25, 6.0), np.diag([1.0, -1.0, 1.0])),  # between voxels
        ((4.0, 5.0, 6.0), np.array([[1.0, 0, 0], [0, 0.8, 0.6], [0, -0.6, 0.8]])),  # its first voxel is one
        ((4.0, 5.0, 6.0), np.diag([1.0, 2.0, 0.5])),
        ((4.0, 5.0, 6.0), np.diag([-1.0, 1.0, -1.0])),
    ],
)
def test_voxels_of_crops_are_taken_or_interpolated(center, matrix):
    if matrix[1, 2]:
        center = np.array((4.0, 5.0, 6.0)) + matrix @ (2, 1, 3)
    crop = CropMap(np.array(center), matrix, (5, 3, 7), False)
    places = crop.center.reshape(3, 1, 1, 1) + np.einsum(
        "ij,j...->i...", matrix, np.indices(crop.size) - np.reshape([2, 1, 3], (3, 1, 1, 1))
    )
    values = map_coordinates(CHANNELS[0].array, places, order=1, mode="grid-constant", cval=-9.0)
    np.testing.assert_allclose(cut(CHANNELS[0].array, crop, -9.0), values, atol=1e-4)
    near = np.rint(places + 1e-9).astype(int)
    if crop.is_on_grid or not (places % 1 == 0.5).any():
        inside = ((near >= 0) & (near < np.reshape(SHAPE, (3, 1, 1, 1)))).all(axis=0)
        np.testing.assert_array_equal(cut_labels(LABELS.array, crop), LABELS.array[tuple(near * inside)] * inside)
    assert crop.is_on_grid == (set(np.abs(matrix).ravel()) == {0.0, 1.0} and center[1] == 5.0)
