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
