"""Which tables a folder has, and which images their names mean."""

import pytest
from support.refusals import refusal_of

from paddlevit_dist.images.data.table_files import ImageFinder, find_tables


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("LABELS.CSV classes.csv .other.csv notes.txt", {"": "LABELS.CSV"}),
        ("_classes.csv", {"": "_classes.csv"}),
        ("class-descriptions-boxable.csv mine.pq", {"": "mine.pq"}),
        ("train.csv my_val_labels.tsv notes.csv test/x.csv", {"train": "train.csv", "val": "my_val_labels.tsv"}),
        ("Train/x.csv Train/classes.csv valid/y.parquet", {"train": "Train/x.csv", "val": "valid/y.parquet"}),
        ("labels.csv train/x.csv", {"": "labels.csv"}),
        ("train/x.csv train/y.tsv", "has several tables, x.csv, y.tsv: name one with -data_path=FILE, or move others"),
        ("a.csv b.csv", "has several tables, a.csv, b.csv: name one with -data_path=FILE, or move others"),
        ("train.csv train2.csv val.csv", "has several tables, train.csv, train2.csv: name one with -data_path=FILE, or "
            "move others"),
    ],
)  # fmt: skip
def test_a_folder_has_one_table_or_one_for_each_split(tmp_path, files, expected):
    touch(tmp_path, *files.split())
    if isinstance(expected, str):
        assert refusal_of(find_tables, str(tmp_path)) == f"{tmp_path} {expected}"
        return
    assert find_tables(str(tmp_path)) == {split: f"{tmp_path}/{file}" for split, file in expected.items()}
    file = f"{tmp_path}/{files.split()[0]}"
    assert find_tables(file) == {"": file}


FILES = "1.png b/2.png b/2.jpg b/3.png b/3.txt sub/1.png sub/4.jpg c/5.png c/.5.png train/7.png val/7.png test/8.png"


@pytest.fixture
def root(tmp_path):
    touch(tmp_path / "pets", *FILES.split(), "d/2.png")
    return tmp_path / "pets"


@pytest.mark.parametrize(
    ("name", "folder", "split", "expected"),
    [
        ("b/2.png", "", "", "b/2.png"),
        ("1.png", "", "", "1.png"),
        ("1.png", "sub", "", "sub/1.png"),
        ("b/3", "sub", "", "b/3.png"),
        ("4", "sub", "", "sub/4.jpg"),
        ("../b/3.png", "sub", "", "b/3.png"),
        ("sub//1.png", "", "", "sub/1.png"),
        ("b\\3", "", "", "b/3.png"),
        ("pets/b/3.png", "", "", "b/3.png"),
        ("5", "", "", "c/5.png"),
        ("5.png", "", "", "c/5.png"),
        ("e/9.png", "", "", "e/9.png.jpg"),
        ("x/y/8.png", "", "", ""),
        ("c/2.png", "", "", ""),
        ("3.txt", "", "", ""),
        ("7.png", "", "val", "val/7.png"),
        ("7", "", "train", "train/7.png"),
        ("7.png", "", "test", ""),  # those there are of other splits
        ("8.png", "", "val", ""),
        ("3.png", "", "val", "b/3.png"),
        ("b/2", "", "", "b/2 may be each of 2.jpg, 2.png in {root}/b: write the ending in the table"),
        ("2.png", "", "", "2.png may be each of b/2.png, d/2.png in {root}: name its folder in the table"),
        ("7.png", "", "", "7.png may be each of train/7.png, val/7.png in {root}: name its folder in the table"),
        ("7.png", "", "other", "7.png may be each of train/7.png, val/7.png in {root}: name its folder in the table"),
    ],
)
def test_a_name_means_one_image(root, name, folder, split, expected):
    touch(root, "e/9.png.jpg")  # an ending behind another one
    names = [name, f"{root}/b/3.png", name]
    if "may be" in expected:
        assert refusal_of(ImageFinder(f"{root}/").find, names, folder, split) == expected.format(root=root)
        return
    assert ImageFinder(f"{root}/").find(names, folder, split) == [expected, "b/3.png", expected]


def test_images_that_no_table_names_are_counted_in_folders_of_others(root):
    finder = ImageFinder(str(root))
    assert finder.count_others({"b/3.png", "c/5.png"}) == (2, ["b/2.jpg", "b/2.png"])
    assert finder.count_others({"1.png", "sub/1.png", "sub/4.jpg"}) == (0, [])
    touch(root, *(f"e/{number}.png" for number in range(7)))
    assert finder.count_others({"e/3.png"}) == (6, ["e/0.png", "e/1.png", "e/2.png", "e/4.png"])


def test_a_backslash_separates_folders_before_a_name_is_the_end_of_other_paths(root):
    touch(root, "x/b/3.png", "x/b\\4.png")
    assert ImageFinder(str(root)).find(["b\\3.png"], "", "") == ["b/3.png"]
    assert ImageFinder(str(root)).find(["b\\4.png"], "x", "") == ["x/b\\4.png"]
    told = refusal_of(ImageFinder(str(root)).find, ["3.png"], "", "")
    assert told == f"3.png may be each of b/3.png, x/b/3.png in {root}: name its folder in the table"
