"""World coordinates of voxels, against homogeneous coordinates written out."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.volumes.geometry import (
    VolumeGeometry,
    check_fits,
    check_geometry,
    check_voxels,
    interpolation_weights,
    require_same_spacing,
    require_spacing,
    resample,
    resampled_shape,
    rotation,
    to_canonical,
)

OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = rotation(np.deg2rad([20.0, -10.0, 5.0])) @ np.diag([0.5, 0.7, 2.0])
OBLIQUE[:3, 3] = [10.0, -20.0, 30.0]


def test_points_are_z_y_x_and_the_world_is_x_y_z():
    geometry = VolumeGeometry((5, 6, 7), OBLIQUE)
    world = geometry.world(np.array([[4.0, 2.0, 1.0]]))
    np.testing.assert_allclose(world[0], (OBLIQUE @ [1.0, 2.0, 4.0, 1.0])[:3])
    np.testing.assert_allclose(geometry.voxels(world), [[4.0, 2.0, 1.0]])
    np.testing.assert_allclose(geometry.spacing, [2.0, 0.7, 0.5])


def test_a_voxel_reaches_half_a_step_beyond_its_center():
    inside = VolumeGeometry((5, 6, 7), OBLIQUE).contains(
        np.array([[-0.5, 0, 0], [4.5, 5.5, 6.5], [-0.6, 0, 0], [0, 5.6, 0]])
    )
    assert inside.tolist() == [True, True, False, False]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (0, 2, 1)])
@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, -1), (-1, -1, -1)])
def test_turning_axes_moves_no_voxel_in_the_world(order, signs):
    array = np.random.default_rng(0).standard_normal((3, 4, 5))
    affine = OBLIQUE.copy()
    affine[:3, :3] = (OBLIQUE[:3, :3] * np.array(signs))[:, list(order)]
    turned, new = to_canonical(array, affine)
    before, after = VolumeGeometry(array.shape, affine), VolumeGeometry(turned.shape, new)
    for voxel in np.ndindex(*turned.shape):
        old = np.rint(before.voxels(after.world(np.array(voxel, dtype=float)))).astype(int)
        assert array[tuple(old)] == turned[voxel]
    assert (np.abs(new[:3, :3]).argmax(axis=0) == [0, 1, 2]).all() and (np.diag(new)[:3] > 0).all()


def test_resampling_a_linear_ramp_keeps_it_in_the_world():
    geometry = VolumeGeometry((9, 8, 7), np.diag([1.0, 2.0, 3.0, 1.0]))
    voxels = np.stack(np.meshgrid(*(np.arange(n) for n in geometry.shape), indexing="ij"), axis=-1)
    ramp = geometry.world(voxels) @ [1.0, 2.0, 3.0]
    given = np.diag([1.0, 2.0, 3.0, 1.0])
    array, affine = resample(ramp, given, np.array([2.0, 2.0, 0.5]))
    np.testing.assert_array_equal(given, geometry.affine)
    new = VolumeGeometry(array.shape, affine)
    np.testing.assert_allclose(new.spacing, [2.0, 2.0, 0.5])
    voxels = np.stack(np.meshgrid(*(np.arange(n) for n in array.shape), indexing="ij"), axis=-1)
    inside = geometry.contains(geometry.voxels(new.world(voxels)) - 0.49) & geometry.contains(
        geometry.voxels(new.world(voxels)) + 0.49
    )
    np.testing.assert_allclose(array[inside], (new.world(voxels) @ [1.0, 2.0, 3.0])[inside], rtol=1e-5)
    assert array.shape == (13, 8, 13)


def test_larger_voxels_hold_the_mean_of_what_they_cover():
    """A checkerboard becomes its mean, a constant stays itself, labels stay labels, and a blob stays where it is; a
    wave becomes as much weaker as the transform of a Gaussian says."""
    board = np.indices((24, 24, 24)).sum(axis=0) % 2
    constant = np.full(board.shape, 7.25)
    for spacing in ([4.0, 4.0, 4.0], [2.0, 3.0, 1.0], [1.7, 1.0, 2.5]):
        wanted = np.array(spacing)
        np.testing.assert_allclose(resample(constant, np.eye(4), wanted)[0], 7.25, rtol=1e-6)
        assert set(np.unique(resample(board, np.eye(4), wanted, are_labels=True)[0])) == {0, 1}
        blob = np.exp(-((np.indices(board.shape) - np.reshape([11, 12, 13], (3, 1, 1, 1))) ** 2).sum(axis=0) / 12)
        found, affine = resample(blob, np.eye(4), wanted)
        places = VolumeGeometry(found.shape, affine).world(np.stack(np.indices(found.shape), axis=-1))[..., ::-1]
        center = (found[..., None] * places).sum(axis=(0, 1, 2)) / found.sum()
        np.testing.assert_allclose(center, [11, 12, 13], atol=0.02)
    inner = resample(board, np.eye(4), np.array([4.0, 4.0, 4.0]))[0][1:-1, 1:-1, 1:-1]
    np.testing.assert_allclose(inner, 0.5, atol=1e-3)
    wave = np.cos(2 * np.pi * np.arange(300) / 6)[:, None, None]
    weaker = np.exp(-2 * (np.pi / 6) ** 2 * (3**2 - 1) / (8 * np.log(2)))
    found = resample(wave, np.eye(4), np.array([3.0, 1.0, 1.0]))[0][5:-5].ravel()
    np.testing.assert_allclose(found, weaker * wave[15:-14:3].ravel()[: len(found)], atol=5e-3)


def test_counts_of_long_axes_are_rounded_in_full_precision():
    """Of 4001 voxels: each count is reached a millionth above half a voxel, less the tolerance."""
    for count in range(1000, 3000, 97):
        for above, expected in ((2e-6, count + 1), (-2e-6, count)):
            step = 4000 / (count - 0.5 - 1e-4 + above)
            shape = resampled_shape((3, 4001, 2), np.eye(4), np.array([1.0, step, 1.0]))
            assert shape == (3, expected, 2)


@pytest.mark.parametrize(
    "shape, affine, message",
    [
        ((4, 5, 6), np.diag([1.0, 0.0, 1.0, 1.0]), "affine is singular"),
        ((4, 5, 6), np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]), "affine is singular"),
        ((4, 5, 6), np.full((4, 4), np.nan), "4 x 4 finite numbers"),
        ((2, 4, 5, 6), np.eye(4), "4 dimensions"),
        ((5, 6), np.eye(4), "2 dimensions"),
    ],
)
def test_bad_geometry_is_told_with_the_file(shape, affine, message):
    with pytest.raises(UserError, match=message) as error:
        check_geometry(shape, affine, "some/file.nii")
    assert str(error.value).startswith("some/file.nii") and "\n" not in str(error.value)


def test_a_leading_axis_of_one_is_no_fourth_dimension():
    assert check_geometry((1, 4, 5, 6), np.eye(4), "file").shape == (4, 5, 6)


def test_positions_are_in_double_precision_whatever_a_header_has():
    for affine in (OBLIQUE.astype(np.float32), OBLIQUE.tolist()):
        found = check_geometry((4, 5, 6), affine, "file").affine
        np.testing.assert_array_equal(found, np.array(affine, np.float64), strict=True)


def test_weights_reach_the_last_voxel_and_no_further():
    for length, count, step, places in ((4, 4, 1.0, [0, 1, 2, 3]), (4, 3, 2.25, [0, 2.25, 3]), (1, 2, 0.5, [0, 0])):
        lower, weights = interpolation_weights(length, count, step)
        assert lower.dtype == np.int64 and weights.dtype == np.float32 and lower.max() <= max(length - 2, 0)
        np.testing.assert_allclose(lower + weights, places)
    assert resampled_shape((1, 5, 4), np.diag([1.0, 2.0, 3.0, 1.0]), np.array([9.0, 2.0, 2.0])) == (1, 5, 3)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 5, 6), None),
        ((4, 5, 7), r"^a\.nii has 4 x 5 x 7 voxels, above the limit of 120 in total; raise VOLUMES\.MAX_VOXELS"),
        ((4, 0, 6), r"^a\.nii: its header announces 4 x 0 x 6 voxels, so the volume is empty"),
        ((1, 1, 1), None),
    ],
)
def test_a_volume_has_voxels_up_to_the_limit(shape, message):
    if message is None:
        return check_voxels("a.nii", shape, 120)
    with pytest.raises(UserError, match=message):
        check_voxels("a.nii", shape, 120)


def test_a_header_announces_at_most_what_its_bytes_can_contain():
    check_fits("a.nii", 3000, 1000, 3)
    with pytest.raises(UserError, match=r"^a\.nii .* announces \(3,001 bytes, more than 1,000 bytes can contain\);"):
        check_fits("a.nii", 3001, 1000, 3)


def test_splits_of_different_spacing_are_refused():
    require_same_spacing("nnunet", None, np.array([1.0, 2, 3]))
    require_same_spacing("nnunet", np.array([1.0, 2, 3]), np.array([1.0, 2, 3.0029]))
    with pytest.raises(
        UserError, match=r"nnunet: .* train and val differ \(\[1\.0, 2\.0, 3\.0\] and \[1\.0, 2\.0, 3\.01\] mm"
    ):
        require_same_spacing("nnunet", np.array([1.0, 2, 3]), np.array([1.0, 2, 3.01]))
    spacing = np.array([1.0, 2, 3])
    assert require_spacing(spacing) is spacing
    with pytest.raises(ValueError, match="the voxel spacing is not known"):
        require_spacing(None)
