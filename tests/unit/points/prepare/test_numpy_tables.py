"""Arrays of .npz files are found by the names that people give them."""

import numpy as np
import pytest

from paddlevit_dist.points.prepare.numpy_tables import read_arrays


@pytest.mark.parametrize("name", ["rgb", "color", "colors", "colour", "colours"])
def test_colors_have_american_and_british_names(tmp_path, name):
    levels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.savez(tmp_path / "scene.npz", coord=np.zeros((2, 3), np.float32), **{name: levels})
    columns = read_arrays(str(tmp_path / "scene.npz"))
    assert [columns[channel].tolist() for channel in ("red", "green", "blue")] == levels.T.tolist()


def test_further_columns_of_points_are_colors(tmp_path):
    rows = np.arange(16.0).reshape(2, 8)
    for count, names in ((8, "x y z red green blue"), (6, "x y z red green blue"), (5, "x y z"), (3, "x y z")):
        np.savez(tmp_path / "scene.npz", points=rows[:, :count])
        columns = read_arrays(str(tmp_path / "scene.npz"))
        assert list(columns)[: len(names.split())] == names.split()
        assert [columns[name].tolist() for name in names.split()] == rows.T[: len(names.split())].tolist()
