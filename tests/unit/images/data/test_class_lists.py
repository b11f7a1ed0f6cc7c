"""Lists of classes are read in all their forms, in British spelling, too."""

import json
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data import class_lists
from paddlevit_dist.images.data.class_lists import (
    ClassList,
    find_class_list,
    published_classes,
    read_class_list,
)


@pytest.mark.parametrize("word", ["unlabeled", "unlabelled", "Unlabelled", "void", "ignore"])
def test_pixels_without_a_class_are_no_class(tmp_path, word):
    (tmp_path / "classes.txt").write_text(f"sky\nroad\n{word}\n", encoding="utf-8")
    listed = read_class_list(str(tmp_path / "classes.txt"))
    assert listed.names == ["sky", "road"] and listed.ignored == (2,)


@pytest.mark.parametrize("word", ["color", "colour", "rgb"])
def test_colors_of_classes_are_read(tmp_path, word):
    entries = [{"name": "sky", word: [1, 2, 3]}, {"name": "road", word: [4, 255, 6]}]
    (tmp_path / "classes.json").write_text(json.dumps(entries), encoding="utf-8")
    listed = read_class_list(str(tmp_path / "classes.json"))
    assert listed.colors.tolist() == [1 + (2 << 8) + (3 << 16), 4 + (255 << 8) + (6 << 16)]


FORMS = {
    "names.txt": (
        "# ours\nsky\n\n  tall tree \nroad",
        [("sky", None, None), ("tall tree", None, None), ("road", None, None)],
    ),
    "one.txt": ("crack\n", [("crack", None, None)]),
    "two.txt": ("sky\nroad2\n", [("sky", None, None), ("road2", None, None)]),  # the first is no heading
    "a.csv": ("name,r,g,b\nsky,1,2,3\nroad,40,50,60\n", [("sky", None, (1, 2, 3)), ("road", None, (40, 50, 60))]),
    "b.csv": ("7,sky\n3,road\n", [("sky", 7, None), ("road", 3, None)]),
    "c.csv": ("sky:1,2,3::\nroad:40,50,60:parts:actions\n", [("sky", None, (1, 2, 3)), ("road", None, (40, 50, 60))]),
    "d.csv": ("7 sky 1 2 3\n3 tall road 40 50 60\n", [("sky", 7, (1, 2, 3)), ("tall road", 3, (40, 50, 60))]),
    "e.csv": ("1,2,3,sky\n40,50,60,road\n", [("sky", None, (1, 2, 3)), ("road", None, (40, 50, 60))]),
    "f.csv": ("name,id\nsky,7\nroad,3\n", [("sky", 7, None), ("road", 3, None)]),
    "g.csv": ('"sky" 1 2 3\nroad 4 5 6', [("sky", None, (1, 2, 3)), ("road", None, (4, 5, 6))]),
    "a.json": ('["sky", "road"]', [("sky", None, None), ("road", None, None)]),
    "b.json": ('{"7": "sky", "3": "road"}', [("sky", 7, None), ("road", 3, None)]),
    "c.json": ('{"sky": 7, "road": 3}', [("sky", 7, None), ("road", 3, None)]),
    "digits.json": ('{"\u00b2": 3, "road": 5}', [("\u00b2", 3, None), ("road", 5, None)]),  # no number in JSON
    "d.json": ('{"sky": "#01020a", "road": [4, 5, 6]}', [("sky", None, (1, 2, 10)), ("road", None, (4, 5, 6))]),
    "e.json": ('{"sky": null, "road": null}', [("sky", None, None), ("road", None, None)]),
    "f.json": (
        '{"more": 1, "categories": [{"id": 7, "title": "sky"}, {"value": 3, "label": "road", "rgb": [4, 5, 6]}]}',
        [("sky", 7, None), ("road", 3, (4, 5, 6))],
    ),
    "g.JSON": ('{"id2label": {"0": "sky", "4": "road"}}', [("sky", 0, None), ("road", 4, None)]),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_a_list_has_its_names_numbers_and_colors(tmp_path, name):
    content, rows = FORMS[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    listed = read_class_list(str(tmp_path / name))
    names, numbers, colors = zip(*rows)
    assert listed.names == list(names) and listed.file == str(tmp_path / name)
    assert listed.is_numbered == (None not in numbers)
    assert listed.numbers == (list(numbers) if listed.is_numbered else list(range(len(rows))))
    if None in colors:
        assert listed.colors is None and listed.palette is None
    else:
        assert listed.palette.tolist() == [list(color) for color in colors]
    by_number = dict(zip(listed.numbers, names))
    assert listed.by_number() == [by_number.get(at, str(at)) for at in range(max(listed.numbers) + 1)]


def test_pixels_without_a_class_keep_their_numbers_and_colors_apart(tmp_path):
    (tmp_path / "classes.csv").write_text("sky,1,0,0\nvoid,0,2,0\nroad,0,0,3\n__ignore__,9,9,9\n", encoding="utf-8")
    listed = read_class_list(str(tmp_path / "classes.csv"))
    assert (listed.names, listed.numbers) == (["sky", "road"], [0, 2])
    assert listed.colors.tolist() == [1, 3 << 16]
    (tmp_path / "labels.txt").write_text("__ignore__\n_background_\nsky\n", encoding="utf-8")
    labelme = read_class_list(str(tmp_path / "labels.txt"))
    assert labelme.numbers[-1] == 1 and -1 in labelme.ignored and labelme.names[-1] == "sky"
    assert ClassList([], []).by_number() == []


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", "sky\nroad\nsky\n", "has name sky twice, for classes 0 and 2; each class needs its own"),
        ("a.csv", "3,sky\n3,road\n", "has number 3 twice"),
        ("b.csv", "sky,1,2,3\nroad,1,2,3\n", r"has color \(1, 2, 3\) twice"),
        ("c.csv", "sky,1,2,256\nroad,1,2,3\n", "sky: expected colors from 0 to 255, and numbers to 65535"),
        ("d.csv", "1,sky\n65536,road\n", "road: expected colors from 0 to 255, and numbers to 65535"),
        ("e.txt", "\n# nothing\n", "lists no classes; expected a line per class"),
        ("a.json", "3", "cannot be read: expected a list of names, or an object with names, numbers or colors"),
        ("b.json", '[3, "a"]', "expected a class name, or an object with a name, found 3"),
        ("c.json", '[{"color": [1, 2, 3]}]', "expected a name in "),
        ("d.json", '{"a": [1, 2]}', "expected a number, or a color such as"),
        ("e.json", '{"a": [1, 2, -3]}', "expected a number, or a color such as"),
        ("f.json", '{"a": "#12345"}', "expected a number, or a color such as"),
        ("g.json", '{"a": 1.5}', "expected a number, or a color such as .* found 1.5"),
        ("h.json", '{"a": [1, 2.0, 3]}', "expected a number, or a color such as .* found .1, 2.0, 3"),
        ("i.json", '{"a": [1, 2, 3, 4]}', "expected a number, or a color such as .* found .1, 2, 3, 4"),
    ],
)
def test_a_list_in_another_form_is_refused_with_its_file(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"{name}.*{message}"):
        read_class_list(str(tmp_path / name))


def test_the_first_list_of_the_first_folder_that_has_one_is_read(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "classes.txt").write_text("sky\n")
    (tmp_path / "c" / "classes.txt").write_text("road\n")
    assert find_class_list([str(tmp_path / name) for name in "abc"]).file == str(tmp_path / "b" / "classes.txt")
    assert find_class_list([str(tmp_path / "a")]) is None


@pytest.mark.parametrize("first, offset", [(None, 0), (None, 3), (0, 3), (1, 0)])
def test_published_classes_have_the_numbers_of_the_files_or_follow_each_other(first, offset):
    table = Path(class_lists.__file__).with_name("label_map_classes.txt").read_text().splitlines()
    rows = [line.split("\t") for line in table]
    for section, number in (("ade20k", 150), ("cityscapes", 19), ("voc", 21), ("coco_stuff", 171)):
        own = [row for row in rows if row[0] == section]
        found = published_classes(section, first, offset)
        assert found.names == [name for _, _, name, _ in own] and len(own) == number and found.file == ""
        numbers = [int(row[1]) + offset for row in own] if first is None else range(first, first + number)
        assert found.numbers == list(numbers) and found.is_numbered and found.ignored == ()
        colors = [[int(level) for level in row[3].split()] for row in own if row[3]]
        assert (found.palette is None and not colors) or found.palette.tolist() == colors
