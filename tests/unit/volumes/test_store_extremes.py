"""The smallest and the largest intensity are those of the file, whatever spacing it is resampled to."""

import numpy as np
import pytest

from paddlevit_dist.volumes.store import DecodedStore, read_decoded

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
