"""Which columns of a file become channels of its scene."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.channels import normalize_name, select_channels

COLUMNS = ["x", "Y", "z", "Red", "scalar_Intensity", "ring", "nx", "NY", "nz", "label", "time ", "Height"]


def select(requested, columns=COLUMNS, excluded=()):
    values = {name: np.arange(3) + 10.0 * place for place, name in enumerate(columns)}
    return select_channels("a.ply", values, requested, excluded)


@pytest.mark.parametrize(
    "requested, names",
    [
        (None, ["intensity", "normal"]),
        (["all"], ["intensity", "ring", "label", "time", "scalar_height", "normal"]),
        (["scalar_height"], ["scalar_height"]),
        (["none"], []),
        (["ring", "normal"], ["ring", "normal"]),
        (["none", "ring"], ["ring"]),
    ],
)
def test_channels_are_the_usual_ones_or_the_requested_ones_in_their_order(requested, names):
    found = select(requested)
    assert list(found) == names
    for name, values in found.items():
        assert values.dtype == np.float32 and values.shape == (3, 3 if name == "normal" else 1)
    if "normal" in names:
        assert found["normal"].tolist() == [[60 + row, 70 + row, 80 + row] for row in range(3)]
    if "ring" in names:
        assert found["ring"].ravel().tolist() == [50, 51, 52]


def test_excluded_columns_and_parts_of_normals_are_no_channels():
    assert list(select(["all"], excluded=("label", None, "ring"))) == ["intensity", "time", "scalar_height", "normal"]
    assert list(select(["all"], ["nx", "ny", "ring", "normal_z"])) == ["ring"]  # never single components
    first = select(
        ["all"], ["Ring", "scalar_ring", "normalx", "normaly", "normalz", "normal_x", "normal_y", "normal_z"]
    )
    assert first["ring"].ravel().tolist() == [0, 1, 2] and first["normal"][0].tolist() == [20, 30, 40]
    alike = select(["all"], ["猫", "Ring", "RING", "+"])
    assert list(alike) == ["猫", "ring", "RING", "+"] and alike["RING"].ravel().tolist() == [20, 21, 22]
    assert [normalize_name(name) for name in (" Time", "scalar_X y ", "rgb")] == ["time", "x y", "rgb"]


def test_a_missing_channel_is_refused_with_those_there_are():
    message = "a.ply has no channel echo, angle, only intensity, ring, label, time, scalar_height, normal"
    with pytest.raises(UserError, match=message):
        select(["ring", "echo", "angle"])
    with pytest.raises(UserError, match="a.ply has no channel echo, only points, colors and labels"):
        select(["echo"], ["x", "y", "z", "red"])
    assert select(["alpha"], ["x", "y", "z", "alpha"])["alpha"].ravel().tolist() == [30, 31, 32]


def test_columns_with_the_name_of_something_else_are_kept_by_another_name_or_refused():
    for name in ("height", "ones"):
        with pytest.raises(UserError, match=f"a.ply: {name} is also computed: .*, call it scalar_{name}"):
            select([name], ["x", "y", "z", "Ones", "scalar_Height"])
    assert list(select(["all"], ["x", "ones", "rgb"])) == ["scalar_ones"]
    with pytest.raises(UserError, match="a.ply has no channel x, red, only ring"):
        select(["ring", "x", "red"], ["x", "red", "ring"])
