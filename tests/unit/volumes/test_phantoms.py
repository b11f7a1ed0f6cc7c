"""Phantoms: their landmarks are where the voxels say, and a seed's phantom is the same everywhere."""

import hashlib
import pickle

import numpy as np
import pytest

from paddlevit_dist.volumes.phantoms import (
    MIRROR_PAIRS,
    NAMES,
    ORGANS,
    SIZES,
    SPACING_MM,
    SyntheticLandmarks,
    create_generator,
    draw_head,
    render_phantom,
)


@pytest.fixture(scope="module")
def phantom():
    return render_phantom(draw_head(create_generator("train", 3)))


def nearest(phantom, name):
    """The voxel at a landmark."""
    voxel = np.rint(phantom.geometry.voxels(phantom.world[NAMES.index(name)])).astype(int)
    return tuple(voxel)


def test_landmarks_are_in_the_organs_that_they_name(phantom):
    volume, organs = phantom
    assert volume.voxels.dtype == np.int16 and organs.dtype == np.uint8 and volume.voxels.shape == organs.shape
    assert sorted(np.unique(organs).tolist()) == list(range(len(ORGANS)))
    for name, organ in {"eye_left": "eyes", "eye_right": "eyes", "chin": "bone", "occiput": "bone"}.items():
        assert ORGANS[organs[nearest(volume, name)]] == organ, name
    for organ, (low, high) in {"background": (-1100, -900), "bone": (650, 900), "brain": (10, 60)}.items():
        assert low < np.median(volume.voxels[organs == ORGANS.index(organ)]) < high
    assert 15 < volume.voxels[organs == 0].std() < 80  # noise
    np.testing.assert_allclose(volume.geometry.spacing, SPACING_MM)


def test_air_has_its_noise_in_whole_numbers():
    head = draw_head(create_generator("train", 3))
    corner = render_phantom(head)[0].voxels[-4:, :5, :6]
    np.testing.assert_array_equal(corner, np.rint(head.noise[-4:, :5, :6] - 1000).clip(-1024))
    assert (head.noise[-4:, :5, :6] % 1 > 0.5).any()


def test_left_and_right_front_and_back_are_the_worlds(phantom):
    world = dict(zip(NAMES, phantom[0].world))
    for pair in MIRROR_PAIRS:
        left, right = (world[name] for name in pair.split(":"))
        assert left[0] < right[0] - 20
    assert world["nose_tip"][1] > world["sella"][1] > world["occiput"][1]
    assert world["chin"][2] < world["nose_tip"][2]


def test_each_phantom_of_each_split_differs_and_is_drawn_again_the_same():
    heads = {}
    for split, index in (("train", 0), ("train", 1), ("val", 0), ("train", 0)):
        head = draw_head(create_generator(split, index))
        digest = hashlib.sha256(head.world.tobytes() + head.noise.tobytes()).hexdigest()
        assert heads.setdefault((split, index), digest) == digest
    assert len(set(heads.values())) == 3


def test_a_dataset_counts_what_is_marked_and_sends_no_voxels():
    dataset = SyntheticLandmarks(None, "val", None)
    assert len(dataset) == SIZES["val"] == 24 and dataset.names == NAMES
    marked = [~np.isnan(dataset.world(index)).any(axis=1) for index in range(24)]
    assert dataset.placed() == np.sum(marked, axis=0).tolist() and 0 < 24 * 8 - sum(dataset.placed()) < 24
    volume = dataset.read(5)[0]
    points, world = dataset.read(5)[1], dataset.world(5)
    np.testing.assert_allclose(volume.geometry.world(points)[marked[5]], world[marked[5]])
    assert dataset.read(5)[0].array is volume.array  # kept
    assert volume.extremes == (volume.array.min(), volume.array.max())
    content = pickle.dumps(dataset)
    assert len(content) < 10_000
    np.testing.assert_array_equal(pickle.loads(content).read(5)[0].array, volume.array, strict=True)
    assert (dataset.case(5), dataset.convention(5)) == ("phantom_val_005", "ras")


def test_the_anatomy_and_the_poses_are_frozen():
    """Scores were measured on them: whoever changes a number measures these scores again."""
    heads = [draw_head(create_generator("train", index)) for index in range(4)]
    parts = [part for head in heads for part in head.parts]
    order = np.arange(1, len(parts) + 1) / len(parts)  # no two parts count alike
    for values, expected in (
        ([part.center for part in parts], [-7.84296, 508.06152, -195.02166]),
        ([part.radii for part in parts], [554.625, 555.125, 506.4375]),
        ([[part.intensity] for part in parts], [1611.875]),
    ):
        np.testing.assert_allclose(order @ np.array(values), expected, atol=1e-4)
    poses = [[1.001324, -0.006675, -0.026814], [0.011134, 0.999517, 0.01073], [0.027847, -0.006112, 0.99591]]
    np.testing.assert_allclose(np.mean([head.pose for head in heads], axis=0), poses, atol=1e-5)
    np.testing.assert_allclose(
        np.mean([head.shift for head in heads], axis=0), [-1.58956, -1.58328, -1.1877], atol=1e-4
    )
    middle = np.nanmean([head.world for head in heads], axis=(0, 1))
    np.testing.assert_allclose(middle, [56.9187, 131.1263, 96.0804], atol=1e-3)
    voxels = np.bincount(render_phantom(heads[0])[1].ravel())
    np.testing.assert_allclose(voxels, [70273, 7272, 4153, 10153, 309], atol=3)  # float32 on the border of an organ
