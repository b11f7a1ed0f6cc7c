"""Label maps whose header scales numbers by nearly 1."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.volumes.segmentation.dataset import LabelStore


def test_numbers_a_slope_away_from_whole_ones_are_these(tmp_path):
    store, numbers = LabelStore(tmp_path, None, 100, [0, 2, 200]), np.array([[[0, 2, 200, 2]]], np.float64)
    assert store.find_classes("labels.nii", numbers * 1.0000000591).tolist() == [[[0, 1, 2, 1]]]
    with pytest.raises(UserError, match=r"labels.nii: voxel 1, 0, 0 \(x, y, z from 0\) has the label 2.5, which"):
        store.find_classes("labels.nii", numbers + np.array([0, 0.5, 0, 0]))
