"""Arrays of .npz files are found by the names that people give them."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.numpy_tables import load_array, read_arrays


@pytest.mark.parametrize("name", ["xyz", "coord", "coords", "points", "point", "pos", "positions", "Coord"])
@pytest.mark.parametrize("normal", ["normal", "normals", "Normals"])
def test_points_and_normals_have_several_names(tmp_path, name, normal):
    places = np.arange(12.0).reshape(2, 6)
    np.savez(tmp_path / "scene.npz", **{name: places[:, :3], normal: places[:, 3:]})
    columns = read_arrays(str(tmp_path / "scene.npz"))
    assert [columns[axis].tolist() for axis in "x y z nx ny nz".split()] == places.T.tolist()


@pytest.mark.parametrize("name", ["rgb", "color", "colors", "colour", "colours", "RGB"])
def test_colors_have_american_and_british_names(tmp_path, name):
    levels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    np.savez(tmp_path / "scene.npz", coord=np.zeros((2, 3), np.float32), **{name: levels})
    columns = read_arrays(str(tmp_path / "scene.npz"))
    assert [columns[channel].tolist() for channel in ("red", "green", "blue")] == levels.T.tolist()


def test_further_columns_of_points_are_colors(tmp_path):
    rows = np.arange(16.0).reshape(2, 8)
    for count, names in ((8, "x y z red green blue"), (6, "x y z red green blue"), (5, "x y z"), (3, "x y z")):
        np.savez(tmp_path / "scene.npz", **{"points" if count < 8 else "Points": rows[:, :count]})
        columns = read_arrays(str(tmp_path / "scene.npz"))
        assert list(columns)[: len(names.split())] == names.split()
        assert [columns[name].tolist() for name in names.split()] == rows.T[: len(names.split())].tolist()
    np.savez(tmp_path / "scene.npz", points=rows[:, :3], echo=rows)
    assert list(read_arrays(str(tmp_path / "scene.npz"))) == ["x", "y", "z", *(f"echo_{n}" for n in range(8))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros(4), r"float64 \(4,\); expected numbers of shape \(points, columns\)"),
        (np.zeros((2, 3, 1)), r"float64 \(2, 3, 1\); expected numbers of shape \(points, columns\)"),
        (np.zeros((2, 3), bool), r"bool \(2, 3\); expected numbers of shape \(points, columns\)"),
        (np.zeros((2, 3), complex), r"complex128 \(2, 3\); expected numbers of shape \(points, columns\)"),
        ({"coord": np.zeros((2, 3, 1))}, r"coord is float64 \(2, 3, 1\); expected numbers, a row for each point"),
        ({"coord": np.zeros((2, 3)), "name": np.array(["a", "b"])}, r"name is <U1 \(2,\); expected numbers, a row"),
        (np.zeros(2, [("X", "f4"), ("x", "f4")]), r"two columns of the same name \(X, x\); rename one of them"),
        ({"coord": np.zeros((2, 2))}, r"coord is \(2, 2\); expected at least 3 columns, x, y, z"),
        ({"coord": np.zeros((2, 3)), "label": np.zeros(3)}, r"arrays of different lengths \(coord .*label \(3,\)\)"),
    ],
)
def test_what_is_not_a_table_is_refused(tmp_path, content, message):
    path = tmp_path / f"scene.np{'z' if isinstance(content, dict) else 'y'}"
    if isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    with pytest.raises(UserError, match=message) as refused:
        read_arrays(str(path))
    assert str(path) in str(refused.value)


def test_tables_and_arrays_are_taken(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    assert read_arrays(str(tmp_path / "a.npy")).tolist() == load_array(str(tmp_path / "a.npy")).tolist()
    arrays = {"seen": np.array([True, False]), "label": np.array([[4], [5]]), "time": np.array([0.5, 2], np.float16)}
    np.savez(tmp_path / "b.npz", coord=np.ones((2, 3)), **arrays)
    columns = read_arrays(str(tmp_path / "b.npz"))
    assert [columns[name].dtype.name for name in ("x", *arrays)] == ["float64", "bool", "int64", "float32"]
    assert columns["label"].tolist() == [4, 5] and columns["seen"].tolist() == [True, False]
    with pytest.raises(UserError, match=r"b\.npz is not an array of numbers, but an archive of several"):
        load_array(str(tmp_path / "b.npz"))
