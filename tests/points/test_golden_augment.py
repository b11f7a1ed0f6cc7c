"""PointGroup's augmentation and elastic distortion, reproduced with its random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.golden import arrays, description

from paddlevit_dist.points.data.augment import affine_matrix
from paddlevit_dist.points.data.elastic import displace, grid_shape


@pytest.fixture(scope="module")
def golden():
    return arrays("pointgroup_data")


def elastic_cases():
    assert "elastic{j}_noise" in description("pointgroup_data")["arrays"]
    names = [name for name in arrays("pointgroup_data") if name.startswith("elastic") and "noise" in name]
    return sorted(name[: -len("_noise")] for name in names)


def test_golden_matrix_of_distortion_flip_and_rotation(golden):
    flip, angle = int(golden["augment_flip_bit"]), 2.0 * math.pi * float(golden["augment_theta_uniform"])
    matrix = affine_matrix(0.1 * golden["augment_noise"].astype(np.float64), flip == 0, angle=angle)
    assert matrix == pytest.approx(golden["augment_matrix"], abs=1e-6)
    assert golden["room_xyz"] @ matrix == pytest.approx(golden["augment_xyz"], abs=1e-5)


def test_golden_fixture_has_both_elastic_passes():
    assert elastic_cases() == ["elastic0", "elastic1"]


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("case", elastic_cases())
def test_golden_elastic_distortion(golden, case, dtype):
    xyz, noise = golden["elastic_xyz"].astype(dtype), golden[f"{case}_noise"]
    granularity, magnitude = int(golden[f"{case}_gran"]), float(golden[f"{case}_mag"])
    assert grid_shape(xyz, granularity) == noise.shape[1:]
    moved = displace(xyz, noise, granularity, magnitude)
    assert moved.dtype == dtype and abs(moved - golden[f"{case}_out"]).max() <= 1e-5
