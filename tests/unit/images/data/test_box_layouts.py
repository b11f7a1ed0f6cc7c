"""Files of annotations that are recognized by their names and beginnings."""

import pytest

from paddlevit_dist.images.data.box_layouts import (
    find_boxes,
    find_yolo_descriptions,
    find_yolo_outlines,
    has_matching_image,
    list_json_files,
    names_split,
    read_beginning,
)


def write(root, **files):
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


OUTLINE, BOX = "0 0.1 0.1 0.2 0.1 0.2 0.3\n", "0 0.5 0.5 0.2 0.2\n"


def test_outlines_of_yolo_are_found_among_the_first_files_unless_they_are_keypoints(tmp_path):
    write(tmp_path, labels__train__x_txt=OUTLINE)
    found = str(tmp_path / "labels" / "train" / "x.txt")
    assert find_yolo_outlines(str(tmp_path)) == found
    for number in range(19):
        write(tmp_path, **{f"labels__train__{number}_txt": BOX})
    assert find_yolo_outlines(str(tmp_path)) == found
    write(tmp_path, labels__train__a_txt=BOX)  # then it is the twenty-first
    assert find_yolo_outlines(str(tmp_path)) is None
    (tmp_path / "labels" / "train" / "a.txt").write_text(OUTLINE)
    write(tmp_path, a_yaml="train: x\nnames: [a]\n", b_yaml="train: x\nnames: [a]\n")
    assert find_yolo_outlines(str(tmp_path)) == str(tmp_path / "labels" / "train" / "a.txt")
    write(tmp_path, b_yaml="train: x\nnames: [a]\nkpt_shape: [1, 2]\n")
    assert find_yolo_outlines(str(tmp_path)) is None


def test_an_image_of_the_same_name_matches_a_file(tmp_path):
    write(tmp_path, a_txt="", b_txt="", b_json="", c_jpg="", sub__a_jpg="", d_txt="", d_PNG="")
    assert [has_matching_image(str(tmp_path / f"{name}.txt")) for name in ("a", "b", "d")] == [False, False, True]


def test_json_files_are_listed_one_level_down(tmp_path):
    write(tmp_path, b_json="", c_JSON="", d_txt="", x__a_json="", x__y__z_json="")
    assert list_json_files(str(tmp_path)) == [f"{tmp_path}/{name}" for name in ("b.json", "c.JSON", "x/a.json")]
    assert list_json_files(str(tmp_path / "nowhere")) == []
    assert read_beginning(str(tmp_path / "x")) == read_beginning(str(tmp_path / "nowhere")) == b""


def test_words_for_splits_are_whole_parts_of_names():
    names = ("instances_Train2017.json", "a-valid.json", "training.x", "trains.json", "my_extra.json")
    assert [names_split(name, "train") for name in names] == [True, False, True, False, False]
    assert [names_split(name, "val") for name in names] == [False, True, False, False, False]
    assert [names_split(name, "Extra") for name in names] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("line", "is_found"),
    [("0 " + "1 2.5e-1 -.5 " * 2, True), ("1000 " * 400 + "plane", False), ("0.5 1 2 3 4 5 6", False)],
)
def test_a_line_of_numbers_is_an_outline(tmp_path, line, is_found):
    (tmp_path / "labels").mkdir()
    file = tmp_path / "labels" / "a.txt"
    file.write_text(f"{line}\nany text\n")
    assert find_yolo_outlines(str(tmp_path)) == (str(file) if is_found else None)


def test_descriptions_and_labels_may_have_endings_in_capitals(tmp_path):
    for name in ("A.YAML", "b.YML", "c.DATA", "d.txt"):
        (tmp_path / name).write_text("train: x\nnames: [a]\n")
        assert find_yolo_descriptions(str(tmp_path)) == ([] if name == "d.txt" else [str(tmp_path / name)])
        (tmp_path / name).unlink()
    write(tmp_path, labels__train__X_TXT=OUTLINE)
    assert find_yolo_outlines(str(tmp_path)) == str(tmp_path / "labels" / "train" / "X.TXT")
    for name in ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml"):
        (tmp_path / name).write_text("")  # whatever a usual name has
        assert find_yolo_descriptions(str(tmp_path)) == [str(tmp_path / name)]
        (tmp_path / name).unlink()
    for place in ("Annotations", "annotations", "xmls", "labels", "VOC2007/annotations"):
        root = tmp_path / place.replace("/", " ")
        (root / place).mkdir(parents=True)
        (root / place / "A.XML").write_text("<annotation><object></object></annotation>")
        assert [found.dataset for found in find_boxes(str(root), "x")] == ["voc"], place
