"""MinkowskiEngine's quantization and collate, reproduced."""

import numpy as np
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.points import sparse_collate, sparse_quantize

ABOUT = description("minkowski_quantize")
SCENES = list(ABOUT["scenes"])


def quantized(golden, scene):
    return sparse_quantize(
        golden[f"{scene}_coords"],
        golden[f"{scene}_feats"],
        golden[f"{scene}_labels"],
        ignore_label=ABOUT["ignore_label"],
        return_index=True,
        return_inverse=True,
        quantization_size=float(golden[f"{scene}_quantization_size"]),
    )


@pytest.mark.parametrize("scene", SCENES)
def test_golden_scene_is_quantized_equally(scene):
    golden = arrays("minkowski_quantize")
    voxels, features, labels, index, inverse = quantized(golden, scene)
    np.testing.assert_array_equal(voxels, golden[f"{scene}_discrete"][golden[f"{scene}_unique_map"]], strict=True)
    np.testing.assert_array_equal(features, golden[f"{scene}_feats"][golden[f"{scene}_unique_map"]], strict=True)
    np.testing.assert_array_equal(labels, golden[f"{scene}_unique_labels"], strict=True)
    assert np.array_equal(index, golden[f"{scene}_unique_map"])
    assert np.array_equal(inverse, golden[f"{scene}_inverse_map"])
    about = ABOUT["scenes"][scene]
    assert (len(golden[f"{scene}_coords"]), len(voxels)) == (about["points"], about["voxels"])


def test_golden_batch_is_collated_equally():
    golden = arrays("minkowski_quantize")
    coordinates, features, labels = zip(*(quantized(golden, scene)[:3] for scene in SCENES))
    batch = sparse_collate(coordinates, features, labels)
    for found, name in zip(batch, ("collated_coords", "collated_feats", "collated_labels")):
        assert np.array_equal(found, golden[name]) and found.dtype == golden[name].dtype
