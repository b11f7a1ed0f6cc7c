"""``classes.txt`` names the classes of any layout and never changes a label."""

import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.image_dataset import name_folders, read_class_names
from paddlevit_dist.images.data.imagenet import ImageNet2012

FOLDERS = ["n01", "n02", "n03"]


@pytest.fixture
def write(tmp_path):
    return lambda text: (tmp_path / "classes.txt").write_bytes(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"tench\ngoldfish\ngreat white shark\n", ["tench", "goldfish", "great white shark"]),
        (b"n02 goldfish\nn01 tench, Tinca tinca\nn03\tshark", ["tench, Tinca tinca", "goldfish", "shark"]),
        (b"n03\nn01\nn02\n\n", FOLDERS),
        ("\ufeffägel\r\nb\r\nc\r\n".encode(), ["ägel", "b", "c"]),
    ],
    ids=["in order", "by folder", "folders in another order", "Windows"],
)
def test_names_by_position_or_by_folder(text, names, write, tmp_path):
    assert name_folders(str(tmp_path), FOLDERS) == FOLDERS
    write(text)
    assert name_folders(str(tmp_path), FOLDERS) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\n", "classes.txt has 2 names, but there are 3 classes"),
        (b"", "classes.txt is empty"),
        (b"a\n\nb\nc\n", "classes.txt line 2 is blank"),
        (b"a\nb\na\n", "classes.txt lines 1 and 3 are both 'a'"),
        (b"\xff\xfea", "classes.txt is not UTF-8 text"),
    ],
)
def test_mistakes_are_named(text, message, write, tmp_path):
    write(text)
    with pytest.raises(UserError, match=message):
        name_folders(str(tmp_path), FOLDERS)


def test_without_the_file_there_are_no_names(tmp_path):
    assert read_class_names(str(tmp_path)) is None


def test_class_folders_are_named_and_keep_their_labels(write, tmp_path):
    for name in ("b", "a"):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (3, 3)).save(tmp_path / "train" / name / "1.png")
    (tmp_path / "cache").mkdir()
    assert ClassFolders(str(tmp_path), "train", tmp_path / "cache").class_names == ["a", "b"]
    write(b"b bee\na ant\n")
    dataset = ClassFolders(str(tmp_path), "train", tmp_path / "cache")
    assert dataset.class_names == ["ant", "bee"] and dataset.describe(0).endswith("train/a/1.png")


def test_lists_are_named_and_have_as_many_classes(write, tmp_path):
    (tmp_path / "train_list.txt").write_text("a.png 0\nb.png 2\n")
    (tmp_path / "cache").mkdir()
    dataset = ImageNet2012(str(tmp_path), "train", tmp_path / "cache")
    assert (dataset.num_classes, dataset.class_names) == (1000, None)
    write(b"x\ny\nz\n")
    dataset = ImageNet2012(str(tmp_path), "train", tmp_path / "cache")
    assert (dataset.num_classes, dataset.class_names) == (3, ["x", "y", "z"])
    write(b"x\ny\n")
    with pytest.raises(UserError, match="train_list.txt line 2: label 2 is out of range; with 2 classes"):
        ImageNet2012(str(tmp_path), "train", tmp_path / "cache")


@pytest.mark.parametrize(
    "folders, lines, expected",
    [
        (["0", "1", "10", "2"], "ant bee cat dog", ["ant", "bee", "dog", "cat"]),
        (["1", "10", "11", "2"], "ant bee cat dog", ["ant", "cat", "dog", "bee"]),
        (["000", "001", "002"], "ant bee cat", ["ant", "bee", "cat"]),
        (["0", "10", "2"], "a b c d e f g h i j k l", ["a", "k", "c"]),
        (["0", "1", "10", "2"], "2 10 1 0", ["0", "1", "10", "2"]),
    ],
)
def test_folders_named_by_numbers_take_the_lines_by_number(tmp_path, folders, lines, expected):
    (tmp_path / "classes.txt").write_text("\n".join(lines.split()))
    assert name_folders(str(tmp_path), folders) == expected


@pytest.mark.parametrize("folders", [["1", "2"], ["0", "4"], ["0", "x"]])
def test_lines_that_are_not_of_the_numbers_are_refused(tmp_path, folders):
    (tmp_path / "classes.txt").write_text("ant\nbee\ncat\n")
    with pytest.raises(UserError, match="has 3 names, but there are 2 classes"):
        name_folders(str(tmp_path), folders)


@pytest.mark.parametrize(
    ("folders", "lines", "expected"),
    [
        (["0", "2"], ["2 dog", "1 cat", "0 bee"], ["bee", "dog"]),
        (["cat", "dog"], ["elk Elch", "dog Hund", "cat Katze"], ["Katze", "Hund"]),
        (["big cat", "dog"], ["elk", "dog", "big cat"], ["big cat", "dog"]),
        (["bear", "cat"], ["brown bear", "wild cat"], ["brown bear", "wild cat"]),
        (["0", "1"], ["type 1", "type 2"], ["type 1", "type 2"]),
        (["Bear", "cat"], ["brown BEAR", "Cat"], ["brown BEAR", "Cat"]),
    ],
)
def test_lines_name_their_own_folders_among_more(tmp_path, folders, lines, expected):
    (tmp_path / "classes.txt").write_text("\n".join(lines))
    assert name_folders(str(tmp_path), folders) == expected


@pytest.mark.parametrize(
    ("folders", "lines"),
    [
        (["bear", "cat", "dog"], ["dog", "cat", "Bear"]),
        (["Bear", "Cat"], ["cat", "BEAR"]),
        (["a b", "c d"], ["C D", "A B"]),
        (["bear", "cat"], ["1, CAT", "2, Bear"]),
        (["cat", "dog"], ["1: dog", "0: cat"]),
        (["cat", "dog"], ["dog,1", "cat,0"]),
        (["a b", "c d"], ["c d Hund", "a b"]),
        (["1", "2"], ["0 cat", "1 dog"]),
    ],
)
def test_lines_at_the_place_of_another_folder_are_refused(tmp_path, folders, lines):
    (tmp_path / "classes.txt").write_text("\n".join(lines))
    with pytest.raises(UserError, match="is at the place of class folder"):
        name_folders(str(tmp_path), folders)


def test_folders_of_one_class_name_are_told_apart_by_the_folders(tmp_path):
    (tmp_path / "classes.txt").write_text("n02012849 crane\nn03126707 crane\nn01440764 tench\n")
    folders = ["n01440764", "n02012849", "n03126707"]  # ImageNet's bird and machine
    assert name_folders(str(tmp_path), folders) == ["tench", "crane (n02012849)", "crane (n03126707)"]
