"""Images with labels in a table: the data sets that tasks read."""

import pickle

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.data.held_out import hold_out
from paddlevit_dist.images.data.label_layouts import TableChoices
from paddlevit_dist.images.data.label_tables import TableOptions
from paddlevit_dist.images.data.table_images import MultiLabelTable, TableImages

ROWS = [("a", "rot;blau"), ("b", "gelb"), ("c", "rot"), ("d", "gelb|rot"), ("e", ""), ("f", "blau"), ("g", "rot")]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "flags"
    folder.mkdir()
    for number, (name, _) in enumerate(ROWS):
        Image.new("RGB", (11 + number, 7), (10 * number, 200, 30)).save(folder / f"{name}.png")
    return folder


def write(root, rows, name="labels.csv", heading="label"):
    (root / name).write_text(f"image,{heading}\n" + "".join(f"{image},{label}\n" for image, label in rows))


def test_an_image_has_one_label_also_in_another_process(root, cache):
    write(root, [("c", "rot"), ("b.png", "gelb"), ("a", "rot")])
    dataset = pickle.loads(pickle.dumps(TableImages(str(root), "train", cache)))
    assert [dataset.identity(index) for index in range(3)] == ["c.png", "b.png", "a.png"]
    assert dataset.labels.tolist() == [1, 0, 1] and dataset.class_names == ["gelb", "rot"] and dataset.num_classes == 2
    image, label = dataset.read(1)
    assert image.size == (12, 7) and image.getpixel((0, 0)) == (10, 200, 30) and label == 0
    assert dataset.label_matrix is None


def test_an_image_has_several_labels_also_in_another_process_and_in_parts(root, cache):
    write(root, ROWS, heading="labels")
    opened = MultiLabelTable(str(root), "train", cache)
    wanted = [[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
    dataset = pickle.loads(pickle.dumps(opened))
    assert dataset.class_names == ["blau", "gelb", "rot"] and dataset.labels is None
    assert dataset.label_matrix.tolist() == wanted and dataset.label_matrix.dtype == np.int8
    image, labels = dataset.read(3)
    assert image.size == (14, 7) and labels.tolist() == [0, 1, 1]
    parts = {split: hold_out(opened, split, 0.3, 0, cache) for split in ("train", "val")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 5, "val": 2}
    for part in parts.values():
        part = pickle.loads(pickle.dumps(part))
        rows = [ord(part.identity(index)[0]) - ord("a") for index in range(len(part))]
        assert part.label_matrix.tolist() == [wanted[row] for row in rows]
        assert part.read(1)[1].tolist() == wanted[rows[1]]


def test_a_changed_label_changes_what_identifies_the_data(root, cache):
    keys = []
    for kind, heading, label in ((TableImages, "label", "rot"), (MultiLabelTable, "labels", "rot")):
        for changed in (label, "gelb"):
            write(root, [("a", "gelb"), ("b", "rot"), ("c", changed)], heading=heading)
            dataset = kind(str(root), "train", cache)
            listed = [bytes(part) for parts in dataset.listed().values() for part in parts]
            keys.append((dataset.content_key, tuple(listed)))
    assert len({key for key, _ in keys}) == len({listed for _, listed in keys}) == 4


def test_a_damaged_matrix_is_written_again(root, cache):
    write(root, ROWS, heading="labels")
    first = MultiLabelTable(str(root), "train", cache).label_matrix.tolist()
    file = next(cache.glob("labels-train-*.npy"))
    content = bytearray(file.read_bytes())
    content[-30] ^= 1
    file.write_bytes(content)
    assert MultiLabelTable(str(root), "train", cache).label_matrix.tolist() == first


def test_validation_is_known_from_splits_folds_and_files(root):
    write(root, ROWS)
    assert not TableImages.has_validation(str(root)) and not TableImages.has_validation(None)
    assert not TableImages.has_validation(str(root / "nowhere"))
    for rows, has_validation in (
        ("image,label,split\na,x,train\nb,x,val\n", True),
        ("image,label,split\na,x,train\nb,x,test\n", True),
        ("image,label,split\na,x,test\nb,x,test\n", False),
        ("image,label,fold\na,x,3\nb,x,4\n", True),
    ):
        (root / "labels.csv").write_text(rows)
        assert TableImages.has_validation(str(root)) is has_validation
        assert TableImages.has_validation(str(root / "labels.csv")) is has_validation
    (root / "labels.csv").unlink()
    write(root, ROWS, "train.csv")
    assert not TableImages.has_validation(str(root))
    write(root, ROWS, "val.csv")
    assert TableImages.has_validation(str(root))


def test_keys_choose_columns_and_folder(root, cache, tmp_path):
    (tmp_path / "mine.tsv").write_text("photo\tmade by\tkind\tfold\na\tx\trot\t1\nz\tx\trot\t2\nb\ty\tgelb\t2\n")
    words = ["-dataset=table", f"-data_path={tmp_path}/mine.tsv", f"DATA.TABLE.IMAGES={root}", "DATA.TABLE.FOLD=2"]
    words += ["DATA.TABLE.IMAGE=photo", "DATA.TABLE.LABELS=[kind]"]
    config = load([*words, "DATA.ALLOW_SKIPPED_FILES=true"]).values
    assert type(TableImages.open(config, "train", cache)) is TableImages
    dataset = TableImages.open(config, "val", cache)
    assert [dataset.identity(index) for index in range(len(dataset))] == ["b.png"]
    assert dataset.class_names == ["gelb", "rot"] and dataset.skipped_files.num_images == 1
    with pytest.raises(UserError, match=r"1 of 2 images is missing below .*flags: z; .*ALLOW_SKIPPED_FILES True"):
        TableImages.open(load(words).values, "val", cache)


def test_keys_of_tables_are_told_to_be_unused_with_other_data():
    configuration = load(["-dataset=digits", "DATA.TABLE.FOLD=2"])
    assert any("DATA.TABLE.FOLD" in line and "it is for table" in line for line in configuration.notices)


def test_a_table_is_recognized_where_nothing_else_is(root, tmp_path):
    write(root, ROWS)
    assert guess(str(root)).dataset == "table" and guess(str(root / "labels.csv")).dataset == "table"
    assert "has labels.csv" in guess(str(root)).reason
    for name in ("cat", "dog"):
        (tmp_path / "folders" / name).mkdir(parents=True)
        Image.new("RGB", (3, 4)).save(tmp_path / "folders" / name / "1.png")
    write(tmp_path / "folders", [("cat/1.png", "cat")])
    assert guess(str(tmp_path / "folders")).dataset == "folder"
    (tmp_path / "notes").mkdir()
    write(tmp_path / "notes", [("a.png", "cat")])
    assert guess(str(tmp_path / "notes")) is None  # no image


def test_other_data_sets_point_to_tables(root, cache):
    write(root, ROWS)
    for place, split, message in (
        (root / "absent.csv", "train", r"absent.csv does not exist"),
        (root / "labels.csv", "train", r"labels.csv is a file, not a folder: if it is a table .* add -dataset=table"),
    ):
        with pytest.raises(UserError, match=message):
            ClassFolders(str(place), split, cache)


def test_unused_options_are_the_defaults():
    assert TableOptions() == TableOptions(TableChoices(None, (), None, False), None, False)
