"""Scaling of intensities by channel against its formulas, and keys that contradict one another."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.volumes.intensities import IntensityConfig, IntensityScaling

VOXELS = np.array([[-900, -200, 10], [40, 250, 1200]], np.int16)
DECODED = SimpleNamespace(window=(-500.0, 700.0), moments=(66.0, 640.0), extremes=(-900.0, 1200.0))
CHANNELS = ["CT", "PET", "MR"]


def config(kinds, window=None, mean_std=None, channels=3, **others):
    keys = SimpleNamespace(NORMALIZE=kinds, INTENSITY_WINDOW=window, INTENSITY_MEAN_STD=mean_std)
    return IntensityConfig.from_config(keys, channels, **others)


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("none", lambda x: x),
        ("z_score", lambda x: (x - 66) / 640),
        ("min_max", lambda x: (x + 900) / 2100),
        ("percentiles", lambda x: (x + 500) / 1200),
    ],
)
def test_a_volume_is_scaled_by_its_own_numbers(kind, expected):
    scaled = config([kind]).scaling(2, DECODED)(VOXELS)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, expected(VOXELS.astype(np.float64)), rtol=1e-5)


def test_each_channel_has_its_window_mean_and_deviation():
    settings = config(["ct", "percentiles", "ct"], [-160, 240, 0, 30, -10, 50], [80, 50, 1, 2, 3, 4])
    expected = [(VOXELS.clip(-160, 240) - 80) / 50, VOXELS / 30, (VOXELS.clip(-10, 50) - 3) / 4]  # "ct" clips
    for channel, values in enumerate(expected):
        np.testing.assert_allclose(settings.scaling(channel, DECODED)(VOXELS), values, rtol=1e-5, atol=1e-6)
    shared = config(["ct"], [-160, 240])
    assert shared.scaling(1, DECODED) == IntensityScaling(40.0, 200.0, -160, 240)  # the middle and half of the window
    assert settings.about() == {
        "normalize": ["ct", "percentiles", "ct"],
        "intensity_window": [[-160.0, 240.0], [0.0, 30.0], [-10.0, 50.0]],
        "intensity_mean_std": [[80.0, 50.0], [1.0, 2.0], [3.0, 4.0]],
    }
    assert shared.about() == {"normalize": ["ct"] * 3, "intensity_window": [-160.0, 240.0]}


def test_a_constant_volume_is_zero_and_not_divided_by_it():
    constant = SimpleNamespace(extremes=(7.0, 7.0))
    assert config(["min_max"]).scaling(0, constant)(np.full(3, 7, np.int16)).tolist() == [0, 0, 0]


def test_the_region_of_z_scores_is_recorded_where_it_decides():
    within = config(["z_score"], within="nonzero")
    assert within.about() == {"normalize": ["z_score"] * 3, "intensity_window": None, "z_score": "nonzero"}
    assert "z_score" not in config(["min_max"], within="nonzero").about()
    for whole in (None, "volume"):
        assert "z_score" not in config(["z_score"], within=whole).about()


def test_one_window_of_several_channels_is_told():
    (line,) = config(["ct", "z_score", "percentiles"], [0, 9]).find_shared(CHANNELS)
    assert "INTENSITY_WINDOW [0, 9] is for each of the channels CT, MR;" in line
    for settings in (
        config(["ct", "z_score", "none"], [0, 9]),
        config(["ct"], [0, 9, 0, 8, 0, 7]),
        config(["percentiles"]),
    ):
        assert settings.find_shared(CHANNELS) == []


@pytest.mark.parametrize(
    "kinds, window, mean_std, said",
    [
        (["ct", "none"], [0, 1], None, "NORMALIZE has 2 values for 3 channels"),
        (["ct"], [0, 1, 2, 3], None, "INTENSITY_WINDOW has 4 numbers for 3 channels: set two, or two for each"),
        (["ct"], [0, 1], [5], "INTENSITY_MEAN_STD has 1 numbers for 3 channels"),
        (["ct"], [4, 4], None, r"INTENSITY_WINDOW \[4, 4\]: expected two different numbers"),
        (["percentiles"], [0, 1, 0, 1, 3, 2], None, "write the smaller number first"),
        (["ct"], [0, 1], [5, 0], r"INTENSITY_MEAN_STD \[5, 0\]: the deviation must be above 0"),
        (["none", "ct", "none"], None, None, "NORMALIZE ct needs VOLUMES.INTENSITY_WINDOW"),
    ],
)
def test_numbers_that_do_not_fit_the_channels_are_refused(kinds, window, mean_std, said):
    with pytest.raises(UserError, match=f"^VOLUMES.*{said}"):
        config(kinds, window, mean_std)
    config(["z_score"], [4, 4] if window == [4, 4] else None, [5, 0] if mean_std == [5, 0] else None)
