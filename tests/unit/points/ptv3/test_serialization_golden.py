"""Codes, orders and patches of Point Transformer V3, reproduced."""

import numpy as np
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.points.ptv3.serialization import cut_patches, find_depths, patch_lengths, serialize

ABOUT = description("ptv3")
GOLDEN = arrays("ptv3")


def batched(case, sizes):
    return np.column_stack([np.repeat(np.arange(len(sizes)), sizes), GOLDEN[f"{case}/grid_coord"]]).astype(np.int64)


@pytest.mark.parametrize("case", ABOUT["codes"])
def test_golden_codes(case):
    about = ABOUT["codes"][case]
    voxels = batched(f"codes/{case}", about["sizes"])
    depths = find_depths(voxels, len(about["sizes"]), by_scene=False)
    assert about["depth_given"] or (depths == about["depth"]).all()
    depths[:] = about["depth"]
    legacy = find_depths(voxels, len(about["sizes"]), is_legacy=True, by_scene=False)
    assert (legacy == about["depth_of_standalone_file"]).all()
    for number, order in enumerate(ABOUT["orders"]):
        codes = serialize(voxels, depths, order)
        assert np.array_equal(codes, GOLDEN[f"codes/{case}/code"][number])
        sorted_rows = np.argsort(codes)
        assert np.array_equal(sorted_rows, GOLDEN[f"codes/{case}/order"][number])
        assert np.array_equal(np.argsort(sorted_rows), GOLDEN[f"codes/{case}/inverse"][number])


@pytest.mark.parametrize("kind", ["varlen", "fixed"])
@pytest.mark.parametrize("case", ABOUT["pads"])
def test_golden_patches(case, kind):
    about, size = ABOUT["pads"][case], ABOUT["pads"][case][f"patch_used_{kind}"]
    assert size == (about["patch_size"] if kind == "varlen" else min(about["patch_size"], *about["sizes"]))
    layout = cut_patches(about["sizes"], size)
    for found, name in zip(layout, ("pad", "unpad", "cu_seqlens")):
        assert np.array_equal(found, GOLDEN[f"pads/{case}/{kind}/{name}"])
    assert np.array_equal(np.diff(layout.starts), patch_lengths(about["sizes"], size))
