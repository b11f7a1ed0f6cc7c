"""PointGroup's augmentation and elastic distortion, reproduced with its random numbers."""

import math

import numpy as np
import pytest
from support.networks.golden import arrays, description
from support.samples.displaced import displace

from paddlevit_dist.points.data.augment import AffineMap, MatrixDistortion, RandomFlip, RandomRotation
from paddlevit_dist.points.data.elastic import grid_shape


@pytest.fixture(scope="module")
def golden():
    return arrays("pointgroup_data")


class ConfigView:
    """Hands out stored numbers in place of random ones."""

    def __init__(self, normal, flip, turn):
        self.normal, self.flip, self.turn = normal, flip, turn

    def standard_normal(self, shape):
        assert shape == self.normal.shape
        return self.normal

    def random(self):
        return self.flip

    def uniform(self, low, high):
        return low + (high - low) * self.turn


def elastic_cases():
    assert "elastic{j}_noise" in description("pointgroup_data")["arrays"]
    names = [name for name in arrays("pointgroup_data") if name.startswith("elastic") and "noise" in name]
    return sorted(name[: -len("_noise")] for name in names)


def test_golden_matrix_of_distortion_flip_and_rotation(golden):
    is_flipped = int(golden["augment_flip_bit"]) == 0
    noise, turn = golden["augment_noise"].astype(np.float64), float(golden["augment_theta_uniform"])
    step = AffineMap(
        (MatrixDistortion(0.1), RandomFlip(0.5, axes=1), RandomRotation(2, 2.0 * math.pi, both_directions=False)),
        centered=False,
    )
    matrix = step.matrix(ConfigView(noise, 0.0 if is_flipped else 0.9, turn))
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
