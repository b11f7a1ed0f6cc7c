"""Text, JSON and YAML within limits: what honest files hold is read as the libraries themselves read it."""

import json
import tracemalloc
from pathlib import Path

import msgspec
import pytest
import yaml

from paddlevit_dist import UserError
from paddlevit_dist.core.commands.predict import read_class_names
from paddlevit_dist.core.runtime import text_files
from paddlevit_dist.core.settings.files import read_file as read_settings
from paddlevit_dist.core.tasks.sample_groups import iterate_records
from paddlevit_dist.images.data.box_layouts import find_yolo_descriptions
from paddlevit_dist.images.data.class_lists import read_class_list
from paddlevit_dist.images.data.data_warnings import DataWarnings
from paddlevit_dist.images.data.image_dataset import names_in_file
from paddlevit_dist.images.data.imagenet import read_entries
from paddlevit_dist.images.data.map_lists import read_list as read_stems
from paddlevit_dist.images.data.map_lists import read_pairs
from paddlevit_dist.images.data.map_pairs import LabelMapPairs
from paddlevit_dist.images.data.outline_files import YOLO_TEXT, read_drawing, read_labelme
from paddlevit_dist.images.data.panoptic_files import read_panoptic
from paddlevit_dist.images.data.yolo_files import YoloDescription, list_images, read_description
from paddlevit_dist.images.detection.data.voc import read_list as read_voc_list
from paddlevit_dist.images.detection.data.yolo import read_rows
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.data.scene_store import read_lines
from paddlevit_dist.points.prepare.pcd import read_pcd
from paddlevit_dist.points.prepare.scannet import read_class_table
from paddlevit_dist.points.prepare.text_tables import read_text as read_points
from paddlevit_dist.points.shapes.data import parse_off
from paddlevit_dist.points.submission import SubmissionFiles
from paddlevit_dist.volumes import landmark_files

CONFIGS = sorted(Path(__file__).resolve().parents[4].glob("configs/**/*.yaml"))
SHARED = "a: &a {x: 1, y: [1, 2.5, 1e3, 31, 1_000, true, ~, 2001-12-14]}\nb: {<<: *a, x: 2}\nc: [*a, *a]\n"


def test_honest_yaml_is_read_as_the_library_reads_it():
    for text in [*(file.read_text() for file in CONFIGS), SHARED, "", "--- {}", "'x'"]:
        assert text_files.parse_yaml(text) == yaml.safe_load(text), text


def test_many_class_names_are_no_bomb():
    names = [f"n{number:08d} name" for number in range(22_000)]
    assert len(text_files.parse_yaml(yaml.safe_dump({"train": names[:5_000]}))["train"]) == 5_000
    assert text_files.parse_json(json.dumps(names)) == names


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_is_read_in_each_unicode(tmp_path, encoding):
    (tmp_path / "a.json").write_text('{"\u00e4": [1, -2, 3.5, "[", null]}', encoding)
    assert text_files.read_json(tmp_path / "a.json") == {"\u00e4": [1, -2, 3.5, "[", None]}


class Person(msgspec.Struct):
    name: str
    age: int = 0


def test_rows_of_a_list_are_read_one_by_one(tmp_path):
    rows = '[{"name": "\u00e4", "more": [[]]}, {"age": 3, "name": "b"}, {"name": 1}]'
    (tmp_path / "a.json").write_text(rows, encoding="utf-8")
    people = text_files.iterate_rows(tmp_path / "a.json", Person)
    assert [next(people), next(people)] == [Person("\u00e4"), Person("b", 3)]
    with pytest.raises(ValueError, match="row 2: Expected `str`, got `int`"):
        next(people)
    for text in ("{}", "[1,", "", "[" * 99_999):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(ValueError):
            list(text_files.iterate_rows(tmp_path / "a.json", Person))


def test_a_file_is_read_no_further_than_the_limit(tmp_path):
    with open(tmp_path / "long", "wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it has more than 1,000,000 bytes"):
            text_files.read_text(tmp_path / "long", largest=1_000_000)
        with pytest.raises(ValueError, match="it has more than 8,388,608 bytes"):
            text_files.read_yaml(tmp_path / "long")
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_json_of_nothing_but_lists_takes_no_memory():
    content = "[" + "[]," * 4_000_001 + "0]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it has more than 4,000,000 lists and objects"):
            text_files.parse_json(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_text_is_read_as_it_is(tmp_path):
    (tmp_path / "a").write_bytes("ä\r\nb".encode("latin-1"))
    (tmp_path / "b").write_bytes("ä\r\nb".encode())
    assert text_files.read_text(tmp_path / "b") == "ä\r\nb"
    assert text_files.read_bytes(tmp_path / "a", 4) == b"\xe4\r\nb"
    with pytest.raises(ValueError, match=r"^it has more than 3 bytes, far more than such files need$"):
        text_files.read_bytes(tmp_path / "a", 3)
    with pytest.raises(UnicodeDecodeError):
        text_files.read_text(tmp_path / "a")
    assert (text_files.LARGEST_BYTES, text_files.LARGEST_YAML_BYTES) == (256 * 1024**2, 8 * 1024**2)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_json_is_within_limits(as_bytes):
    def parse(text, **options):
        return text_files.parse_json(text.encode() if as_bytes else text, **options)

    assert parse('{"a": 1, "a": [2]}', pairs=list) == [("a", 1), ("a", [2])]
    assert parse("9" * 400) == int("9" * 400)
    with pytest.raises(ValueError, match="^it has a number of 401 digits$"):
        parse("[" + "9" * 401 + "]")
    with pytest.raises(ValueError, match="^it is nested too deeply$"):
        parse("[" * 100_000)
    words = "[{" * 1_999_999  # in a text: their number is looked at before it is known where they stand
    assert parse(f'[{{"a": "{words}"}}]') == [{"a": words}]
    for text in (f'[[["{words}"]]]', f'[[{{"a": "{words}"}}]]'):
        with pytest.raises(ValueError, match="^it has more than 4,000,000 lists and objects$"):
            parse(text)


@pytest.mark.parametrize(
    "text, value",
    [("0040", 40), ("-0_7", -7), ("0x10", "0x10"), ("+0b11", "+0b11"), ("1:30", "1:30"), ("1:30.5", "1:30.5")]
    + [("1.5e+3", 1500.0), ("-.inf", float("-inf")), ("9" * 400, int("9" * 400)), ("0b", "0b")],
)
def test_numbers_of_yaml_are_what_a_reader_expects(text, value):
    found = text_files.parse_yaml(text)
    assert found == value and type(found) is type(value)


SHAPES = '{"shapes": [{"label": "\u00e4", "points": [[1, 2], [3, 4], [5, 9]], "shape_type": "polygon"}]}'
PANOPTIC = (
    '{"categories": [{"id": 4, "name": "\u00e4"}], "annotations": [{"file_name": "a.png", "segments_info": '
    '[{"id": 9, "category_id": 4}]}]}'
)
NRRD_LIST = (
    "# Markups fiducial file version = 4.11\n# CoordinateSystem = LPS\n# columns = id,x,y,z,label\n1,1,2,3,n\u00e4se\n"
)
READERS = {  # of files that a stranger may have written with a mark: name and text of a file, and what reads it
    "class names": ("classes.txt", "\u00e4\nb\n", lambda file: names_in_file(str(file))),
    "class list": ("labels.txt", "\u00e4,1\nb,2\n", lambda file: read_class_list(str(file)).names),
    "class list in JSON": ("id2label.json", '{"0": "\u00e4"}', lambda file: read_class_list(str(file)).names),
    "YOLO's description": ("data.yaml", "names: [\u00e4]\ntrain: a", lambda file: read_description(str(file.parent))),
    "beginning": ("x.yaml", "names: [\u00e4]\ntrain: a", lambda file: find_yolo_descriptions(str(file.parent))),
    "outlines": ("a.txt", "0 .1 .2 .3 .4 .5 .9\n", lambda file: read_drawing(YOLO_TEXT, str(file), (10, 10)).shapes),
    "boxes": ("a.txt", "0 .1 .2 .3 .4\n", lambda file: read_rows(str(file), (9, 9), {0: 0}, DataWarnings())),
    "Labelme": ("a.json", SHAPES, lambda file: read_labelme(str(file))),
    "panoptic": (
        "val.json",
        PANOPTIC,
        lambda file: read_panoptic(LabelMapPairs(["a.jpg"], [str(file.parent / "val" / "a.png")], []))[0],
    ),
    "groups": ("g.json", '{"images": [{"file_name": "\u00e4"}]}', lambda file: list(iterate_records(str(file)))),
    "table": ("g.csv", "name,\u00e4\n1,2\n", lambda file: list(iterate_records(str(file)))),
    "lines": ("classes.txt", "w\u00e4ll\nfloor\r\n\nx", lambda file: read_lines(file)),
    "mesh": ("a.off", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", lambda file: parse_off(str(file))),
    "points": ("a.txt", "x y z\n1 2 3\n4 5 6\n", lambda file: read_points(str(file))),
    "submission": ("a.txt", "3\n4\n", lambda file: SubmissionFiles(str(file.parent)).read("a.txt", 99)),
    "landmarks": ("a.csv", "name,x,y,z\nn\u00e4se,1,2,3\n", lambda file: landmark_files.read(str(file))),
    "landmarks in JSON": ("a.json", '{"n\u00e4se": [1, 2, 3]}', lambda file: landmark_files.read(str(file))),
    "landmarks of Slicer": ("a.fcsv", NRRD_LIST, lambda file: landmark_files.read(str(file))),
    "settings": ("a.yaml", "TAG: \u00e4", lambda file: [setting.value for setting in read_settings(str(file))]),
    "rows": ("a.json", '[{"name": "\u00e4"}]', lambda file: list(text_files.iterate_rows(file, Person))),
    "names to predict": ("names.txt", "\u00e4\nb", lambda file: read_class_names(str(file))),
    "numbers": ("classes.tsv", "id\traw_category\tnyu40id\n2\twall\t1\n", lambda file: read_class_table(str(file))),
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, kind, encoding):
    name, text, read = READERS[kind]
    (tmp_path / name).write_bytes(text.encode())
    expected = read(tmp_path / name)
    (tmp_path / name).write_bytes(text.encode(encoding))
    assert expected and str(read(tmp_path / name)) == str(expected)


PLY = "ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\n2.5\n"
PCD = "VERSION .7\nFIELDS x\nSIZE 4\nTYPE F\nCOUNT 1\nWIDTH 1\nHEIGHT 1\nPOINTS 1\nDATA ascii\n2.5\n"


@pytest.mark.parametrize("text, read", [(PLY, read_vertices), (PCD, read_pcd)])
def test_a_byte_order_mark_before_the_header_of_points_is_skipped(tmp_path, text, read):
    (tmp_path / "a").write_text(text, "utf-8-sig")
    assert read(str(tmp_path / "a"))["x"].tolist() == [2.5]


def test_text_that_its_mark_does_not_announce_is_refused_in_a_line(tmp_path):
    (tmp_path / "classes.txt").write_bytes(b"\xff\xfea\0b")  # cut within a character
    with pytest.raises(UserError, match="classes.txt is not UTF-8"):
        names_in_file(str(tmp_path / "classes.txt"))


LISTS = {  # of paths or names: name of a file, and what reads it
    "YOLO's images": ("train.txt", lambda file: list_images(str(file.parent), "train", TRAIN)),
    "YOLO's data of darknet": ("own.data", lambda file: read_description(str(file.parent))),
    "VOC's images": ("train.txt", lambda file: read_voc_list(str(file), ())),
    "names of label maps": ("train.txt", lambda file: read_stems(str(file), {}, {}, ("images", "labels"))),
    "pairs of images and label maps": ("train.txt", lambda file: read_pairs(str(file), str(file.parent))),
    "ImageNet's images": ("train_list.txt", lambda file: list(read_entries(file, 9))),
    "class names": ("classes.txt", lambda file: names_in_file(str(file))),
    "class list": ("labels.txt", lambda file: read_class_list(str(file))),
    "names of scenes": ("train.txt", read_lines),
    "names to predict": ("names.txt", lambda file: read_class_names(str(file))),
}
TRAIN = YoloDescription("data.yaml", {0: "cat"}, {"train": ["train.txt"]}, "", (), 0)


@pytest.mark.parametrize("kind", LISTS)
def test_a_null_byte_in_a_list_is_refused_with_file_and_line(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    name, read = LISTS[kind]
    (tmp_path / name).write_bytes(b"names = a.names 0\ntrain = b\x00.txt 1\nvalid = c.txt 0\n")
    with pytest.raises(UserError, match=f"{name}.* line 2.* has a null byte; remove it") as refused:
        read(tmp_path / name)
    assert "\n" not in str(refused.value) and "\0" not in str(refused.value)


WORDS = ["no", "yes", "on", "OFF", "true", "007", "1e3", "1.50", "null", "~", "2001-12-14", "0x10", "1:30", "NaN"]


@pytest.mark.parametrize(
    "written",
    [
        f"[{', '.join(WORDS)}]",
        "".join(f"\n- {word}" for word in WORDS),
        "".join(f"\n  {number}: {word}" for number, word in enumerate(WORDS)),
        f"&same [{', '.join(map(repr, WORDS))}]",
    ],
)
def test_words_of_text_keys_stay_as_they_are_written(written):
    found = text_files.parse_yaml(f"names: {written}\nother: [no, 007, 1.50]", ("names",))
    assert (list(found["names"].values()) if isinstance(found["names"], dict) else found["names"]) == WORDS
    assert found["other"] == [False, 7, 1.5]
    nothing = text_files.parse_yaml("a: ~\nb:\nc: {0: , 1: x}\nd: 1.50\ne: [[no]]", tuple("abcde"))
    assert nothing == {"a": None, "b": None, "c": {0: None, 1: "x"}, "d": "1.50", "e": [[False]]}


@pytest.mark.parametrize(
    "text, told",
    [
        ("a: 1\nb: " + "9" * 401, "line 2: a number of 401 characters"),
        ("\n" + "[" * 101 + "]" * 101, "line 2: nested too deeply"),
        ("[" + "[], " * 60 + "[" * 100 + "]" * 101, "line 1: nested too deeply"),
        ("a: &a [*a]", "line 1: the value of *a contains itself"),
        ("a: 2001-99-99", "line 1: '2001-99-99' is not timestamp"),
        ("a: !!int [1]", "line 1: expected a scalar node, but found sequence"),
        ("a: !!int " + "x" * 50, f"line 1: '{'x' * 40}' is not int"),
        ("a: !!float ''", "line 1: '' is not float"),
        ("a: !own 1", "line 1: could not determine a constructor for the tag '!own'"),
        ("a: [1", "line 1: expected ',' or ']', but got '<stream end>'"),
        ("a: \x00", "unacceptable character #x0000: special characters are not allowed"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
    ],
)
def test_yaml_that_is_wrong_is_told_with_its_line(text, told):
    with pytest.raises(ValueError) as refused:
        text_files.parse_yaml(text)
    assert str(refused.value) == told


def test_yaml_is_within_limits():
    assert text_files.parse_yaml("[" * 100 + "]" * 100)
    many = f"a: &a [{'1, ' * 498}]\nb: [{'*a, ' * 498}"  # 249,503 values, of which each alias is 500
    assert len(text_files.parse_yaml(f"{many}{'1, ' * 497}]")["b"]) == 498 + 497
    with pytest.raises(ValueError, match="^line 2: more than 250,000 values with its aliases expanded$"):
        text_files.parse_yaml(f"{many}{'1, ' * 498}]")
    for size, told in ((8_388_608, "^line 1: "), (8_388_609, "^it has more than 8,388,608 bytes$")):
        with pytest.raises(ValueError, match=told):
            text_files.parse_yaml("@" * size)  # no token begins so
