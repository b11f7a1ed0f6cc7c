"""Which columns of a table are coordinates, class and object, by names of files, of the caller, or known ones."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices
from paddlevit_dist.points.prepare.tables import PlyReader, TextReader, read_table


def write(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


def read(path, **choices):
    """The scene of a file, and the remarks."""
    reader = TextReader(SceneChoices(gray=True, **choices))
    return reader.read(RawScene("a", (str(path),), True)), reader.remarks


def test_columns_without_names_get_those_of_the_caller_or_of_their_number(tmp_path):
    path = write(tmp_path, "a.txt", "1 2 3 9 4 5", "6 7 8 9 10 11")
    assert list(read_table(path, "text")) == ["x", "y", "z", "red", "green", "blue"]
    columns = read_table(path, "text", ["z", "x", "-", "-", "y", "label"])
    assert {name: values.tolist() for name, values in columns.items()} == {
        "z": [1, 6], "x": [2, 7], "y": [4, 10], "label": [5, 11],
    }  # fmt: skip
    assert list(read_table(path, "text", default_names={6: "abcdef"})) == list("abcdef")
    named = write(tmp_path, "b.txt", "x y z", "1 2 3")
    for file, names, said in (
        (path, ["x", "y", "z"], r"a.txt has 6 columns, but --columns names 3 \(x,y,z\)"),
        (path, ["x", "y", "z", "x", "-", "-"], "--columns=x,y,z,x,-,- has a name twice"),
        (named, ["x", "y", "z"], r"b.txt already names its columns \(x, y, z\); drop --columns"),
        (write(tmp_path, "c.txt", "1 2 3 4"), None, "c.txt has 4 columns without names"),
    ):
        with pytest.raises(UserError, match=said):
            read_table(file, "text", names)


ROWS = ["1 2 3 0 5 1 7", "4 5 6 0 4 2 7", "7 8 1 2 3 0 7"]


def test_class_and_object_are_the_first_known_names_or_those_of_the_caller(tmp_path):
    path = write(tmp_path, "a.txt", "x y z Class scalar_Label object intensity", *ROWS)
    scene, remarks = read(path)
    assert scene.semantic.tolist() == [5, 4, 3] and len(set(scene.instance.tolist())) == 3
    assert [line for line in remarks if "several properties" in line] == [
        f"{path} has several properties that may contain the class (scalar_label, class): 'scalar_label' is used; "
        "choose another with --label"
    ]
    scene, remarks = read(path, label="class", instance="intensity")
    assert scene.semantic.tolist() == [0, 0, 2] and not any("several properties" in line for line in remarks)
    first, second, third = scene.instance.tolist()
    assert first == second != third  # the same number in another class is another object
    assert set(read(path, instance="none")[0].instance.tolist()) == {-100}
    for choices, said in (
        ({"label": "kind"}, "a.txt has no property kind with a class for each point, only x, y, z, class"),
        ({"instance": "thing"}, r"a.txt has no property thing \(--instance\), only x, y, z, class"),
    ):
        with pytest.raises(UserError, match=said):
            read(path, **choices)
    write(tmp_path, "a.txt", "x y z intensity", "1 2 3 4")
    with pytest.raises(UserError, match="no property label or class or semantic or category or classification with"):
        read(path)


def test_each_known_name_of_class_object_and_packed_color(tmp_path):
    for label in ("label", "class", "semantic", "category", "classification", "Scalar_Label", "CLASS"):
        for instance in ("instance", "instance_id", "object", "object_id", "Object"):
            scene, _ = read(write(tmp_path, "a.txt", f"x y z {label} {instance}", "1 2 3 4 7", "4 5 6 2 8"))
            assert scene.semantic.tolist() == [4, 2] and len(set(scene.instance.tolist())) == 2, (label, instance)
            assert -100 not in scene.instance, (label, instance)


def test_files_of_other_formats_are_told(tmp_path):
    path, reader = write(tmp_path, "a.txt", "x y z label", "1 2 3 1"), TextReader()
    assert reader.find(str(tmp_path)) == {"a": path} and reader.remarks == []
    for name in ("b.ply", "c.ply"):
        (tmp_path / name).touch()
    reader.find(str(tmp_path))
    (remark,) = reader.remarks
    assert "also contains 2 .ply, not read as scenes: only .txt and .xyz and .csv and .pts and .asc" in remark


@pytest.mark.parametrize(
    "choice",
    [
        {"class_names": ("a", "b", "c")},
        {"label": "kind"},
        {"instance": "thing"},
        {"ignore_label": 7},
        {"gray": True},
        {"channels": ("intensity",)},
        {"columns": ("x", "y", "z")},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_scenes_are_prepared_again_with_another_choice(choice):
    settings = [PlyReader(SceneChoices(**choices)).settings for choices in ({}, choice, dict(choice))]
    assert settings[0] != settings[1] == settings[2]


def test_endings_may_be_in_capitals(tmp_path):
    names = ["a.TXT", "b.Xyz", "c.CSV", "d.PTS", "e.ASC"]
    paths = [write(tmp_path, name, "x y z label", "1 2 3 1") for name in names]
    assert TextReader().find(str(tmp_path)) == dict(zip("abcde", paths))
