"""The smallest and the largest intensity are those of the file, whatever spacing it is resampled to."""

import numpy as np
import pytest
from support.refusals import refusal_of

from paddlevit_dist.volumes.store import DecodedStore, moments, percentile_window, read_decoded

nibabel = pytest.importorskip("nibabel")


def test_extremes_are_of_the_voxels_before_resampling(tmp_path):
    voxels = np.full((8, 8, 8), 10, np.float32)
    voxels[4, 4, 4], voxels[2, 2, 2] = 100, -50  # peaks that resampling shortens
    file = str(tmp_path / "case.nii")
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), file)
    store = DecodedStore(tmp_path / "cache", [1.7, 1.7, 1.7])
    for decoded in (read_decoded(file, [1.7, 1.7, 1.7], 10_000), store.get(file), store.get(file)):
        assert decoded.array.shape != voxels.shape and decoded.array.max() < 100
        assert decoded.extremes == (-50, 100)


def test_a_copy_that_is_damaged_after_it_was_verified_is_told(tmp_path):
    file = str(tmp_path / "case.nii")
    nibabel.save(nibabel.Nifti1Image(np.arange(60, dtype=np.int16).reshape(3, 4, 5), np.eye(4)), file)
    store = DecodedStore(tmp_path / "cache", None)
    assert store.get(file).extremes == (0, 59)
    (copy,) = (tmp_path / "cache").glob("*.npy")
    copy.write_bytes(copy.read_bytes()[:64])
    message = refusal_of(store.get, file)
    assert message == f"the decoded copy of {file} in {tmp_path / 'cache'} was damaged: start the run again"
    assert DecodedStore(tmp_path / "cache", None).get(file).extremes == (0, 59)  # of another run, decoded again


@pytest.mark.parametrize("number, every", [(5 * 7 * 11, 1), (3 * 700_000, 2)])
def test_a_window_encloses_the_voxels_without_the_darkest_and_brightest(number, every):
    voxels = np.random.default_rng(0).permutation(number).astype(np.float32) * 0.5 - 40
    ranks = np.sort(voxels.reshape(-1)[::every])
    low, high = percentile_window(voxels.reshape(-1, 5, 7) if number == 385 else voxels.reshape(3, -1, 7))
    for found, share in ((low, 0.005), (high, 0.995)):
        place = share * (len(ranks) - 1)
        below, above = ranks[int(np.floor(place))], ranks[int(np.ceil(place))]
        assert found == pytest.approx(below + (place % 1) * (above - below), rel=1e-9)


def test_a_plain_volume_has_a_window_and_a_deviation_that_can_be_divided_by():
    plain = np.full((3, 4, 5), 7, np.int16)
    assert percentile_window(plain) == (7.0, 8.0) and moments(plain) == (7.0, 1.0)
    uneven = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    assert moments(uneven) == pytest.approx((29.5, np.sqrt((60**2 - 1) / 12)))
