"""A user's pictures in class folders."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.errors import UserError
from paddlevit_dist.images.data.class_folders import ClassFolders

EXTENSIONS = ("jpg", "jpeg", "png", "bmp", "webp", "gif", "tif", "tiff", "ppm", "pgm", "jfif")


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    """Two classes: train/{cat,dog} with two pictures each, val/{cat,dog} with one."""
    folder = tmp_path / "pets"
    for name in (
        "train/dog/2.png",
        "train/dog/1.png",
        "train/cat/4.png",
        "train/cat/3.png",
        "val/cat/5.png",
        "val/dog/6.png",
    ):
        save_picture(folder / name)
    return folder


def save_picture(path, colour=(10, 200, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 9), colour).save(path)


def files(dataset):
    """(path below the dataset's folder, label) of each sample."""
    return [(os.path.relpath(dataset.describe(i), dataset.root), int(dataset.labels[i])) for i in range(len(dataset))]


def test_pictures_are_sorted_by_class_and_path(root, cache):
    dataset = ClassFolders(str(root), "train", cache)
    assert dataset.class_names == ["cat", "dog"] and dataset.num_classes == 2
    assert files(dataset) == [
        ("train/cat/3.png", 0),
        ("train/cat/4.png", 0),
        ("train/dog/1.png", 1),
        ("train/dog/2.png", 1),
    ]
    assert [dataset.read(i)[1] for i in range(4)] == [0, 0, 1, 1]


@pytest.mark.parametrize("extension", [e for name in EXTENSIONS for e in (name, name.upper())])
def test_every_extension_is_found_and_decoded(tmp_path, cache, extension):
    path = tmp_path / "data" / "train" / "one" / f"p.{extension}"
    path.parent.mkdir(parents=True)
    mode = "L" if extension.lower() == "pgm" else "RGB"
    Image.new("RGB", (12, 9), (200, 200, 200)).convert(mode).save(path)
    dataset = ClassFolders(str(tmp_path / "data"), "train", cache)
    picture, label = dataset.read(0)
    assert len(dataset) == 1 and label == 0
    assert picture.mode == "RGB" and picture.size == (12, 9)
    assert np.abs(np.asarray(picture).astype(int) - 200).max() <= 3


def test_other_files_and_hidden_ones_are_left_out(root, cache):
    (root / "train" / "cat" / "notes.txt").write_text("no picture")
    (root / "train" / "cat" / "jpg").write_text("no extension")
    shutil.copy(root / "train" / "cat" / "3.png", root / "train" / "cat" / "._3.png")
    save_picture(root / "train" / ".ipynb_checkpoints" / "3.png")
    save_picture(root / "train" / "cat" / ".cache" / "3.png")
    (root / "train" / "readme.png").write_text("beside the class folders")
    dataset = ClassFolders(str(root), "train", cache)
    assert dataset.class_names == ["cat", "dog"] and len(dataset) == 4


def test_nested_folders_belong_to_their_class(root, cache):
    save_picture(root / "train" / "dog" / "small" / "brown" / "0.png")
    save_picture(root / "train" / "dog" / "folder.png" / "7.png")
    assert files(ClassFolders(str(root), "train", cache))[2:] == [
        ("train/dog/1.png", 1),
        ("train/dog/2.png", 1),
        ("train/dog/folder.png/7.png", 1),
        ("train/dog/small/brown/0.png", 1),
    ]


def test_symbolic_links_are_followed(root, cache, tmp_path):
    save_picture(tmp_path / "elsewhere" / "far.png", (1, 2, 3))
    (root / "train" / "ape").symlink_to(tmp_path / "elsewhere")
    (root / "train" / "cat" / "linked.png").symlink_to(tmp_path / "elsewhere" / "far.png")
    dataset = ClassFolders(str(root), "train", cache)
    assert dataset.class_names == ["ape", "cat", "dog"]
    assert files(dataset)[:1] + files(dataset)[3:4] == [("train/ape/far.png", 0), ("train/cat/linked.png", 1)]
    assert dataset.read(0)[0].getpixel((0, 0)) == dataset.read(3)[0].getpixel((0, 0)) == (1, 2, 3)


def test_link_to_a_parent_folder_is_named(root, cache):
    (root / "train" / "cat" / "again").symlink_to(root / "train")
    with pytest.raises(UserError, match=r"again.* is a link to a folder that contains it"):
        ClassFolders(str(root), "train", cache)


def test_val_labels_are_those_of_train(root, cache):
    shutil.rmtree(root / "val" / "cat")
    dataset = ClassFolders(str(root), "val", cache)
    assert files(dataset) == [("val/dog/6.png", 1)]
    assert dataset.class_names == ["cat", "dog"] and dataset.num_classes == 2


@pytest.mark.parametrize("missing, taken", [(0, "val"), (1, "valid"), (2, "validation"), (3, "test")])
def test_val_folder_has_four_names_in_order_of_preference(root, cache, missing, taken):
    shutil.rmtree(root / "val")
    for name in ("val", "valid", "validation", "test")[missing:]:
        save_picture(root / name / "cat" / "x.png")
    assert files(ClassFolders(str(root), "val", cache)) == [(f"{taken}/cat/x.png", 0)]


def test_val_alone_brings_its_own_classes(root, cache):
    shutil.rmtree(root / "train")
    dataset = ClassFolders(str(root), "val", cache)
    assert dataset.class_names == ["cat", "dog"]
    assert files(dataset) == [("val/cat/5.png", 0), ("val/dog/6.png", 1)]


def test_val_class_that_train_lacks_is_named(root, cache):
    save_picture(root / "val" / "emu" / "1.png")
    with pytest.raises(UserError, match=rf"'emu' of {root}/val does not exist in {root}/train"):
        ClassFolders(str(root), "val", cache)


def test_empty_training_class_is_named(root, cache):
    (root / "train" / "eel").mkdir()
    (root / "train" / "eel" / "notes.txt").write_text("no picture")
    with pytest.raises(UserError, match=rf"class folder {root}/train/eel holds no pictures"):
        ClassFolders(str(root), "train", cache)


def test_empty_validation_class_is_allowed_unless_all_are_empty(root, cache):
    (root / "val" / "cat" / "5.png").unlink()
    assert files(ClassFolders(str(root), "val", cache)) == [("val/dog/6.png", 1)]
    (root / "val" / "dog" / "6.png").unlink()
    with pytest.raises(UserError, match=rf"{root}/val holds no pictures"):
        ClassFolders(str(root), "val", cache)


def test_folder_without_class_folders_is_named(tmp_path, cache):
    save_picture(tmp_path / "flat" / "train" / "a.png")
    with pytest.raises(UserError, match=rf"{tmp_path}/flat/train has no class folders"):
        ClassFolders(str(tmp_path / "flat"), "train", cache)


def test_missing_split_folder_names_the_accepted_ones(root, cache):
    shutil.rmtree(root / "val")
    with pytest.raises(UserError, match=rf"{root} has no folder val/<class>/ or valid/<class>/ or validation/<class>/"):
        ClassFolders(str(root), "val", cache)


def test_missing_data_path_is_named(tmp_path, cache):
    with pytest.raises(UserError, match=r"folder needs -data_path=.*train/<class>/"):
        ClassFolders(None, "train", cache)
    with pytest.raises(UserError, match=rf"data path {tmp_path}/nowhere does not exist"):
        ClassFolders(str(tmp_path / "nowhere"), "train", cache)


def test_new_picture_is_seen_by_the_next_run(root, cache):
    assert len(ClassFolders(str(root), "train", cache)) == 4
    save_picture(root / "train" / "cat" / "0.png")
    assert files(ClassFolders(str(root), "train", cache))[0] == ("train/cat/0.png", 0)


def test_picture_moved_to_another_class_changes_its_label(root, cache):
    ClassFolders(str(root), "train", cache)
    (root / "train" / "dog" / "1.png").rename(root / "train" / "cat" / "1.png")
    assert files(ClassFolders(str(root), "train", cache))[0] == ("train/cat/1.png", 0)


def test_second_run_takes_the_same_index(root, cache):
    ClassFolders(str(root), "train", cache)
    first = {file.name: file.stat().st_ino for file in cache.iterdir()}
    ClassFolders(str(root), "train", cache)
    assert {file.name: file.stat().st_ino for file in cache.iterdir()} == first and len(first) == 1


def damage_nothing_decodable(path):
    path.write_bytes(b"<html>not found</html>")


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:-30])


def damage_empty(path):
    path.write_bytes(b"")


def damage_remove(path):
    path.unlink()


@pytest.mark.parametrize(
    "damage, reason",
    [
        (damage_nothing_decodable, "not a picture in a format that Pillow knows"),
        (damage_truncate, "truncated|broken|unrecognized|incomplete"),
        (damage_empty, "the file is empty"),
        (damage_remove, "No such file or directory"),
    ],
)
def test_unreadable_picture_is_named_with_the_reason(root, cache, damage, reason):
    path = root / "train" / "cat" / "3.png"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    dataset = ClassFolders(str(root), "train", cache)
    damage(path)
    with pytest.raises(UserError, match=rf"^{path} cannot be read as an image: .*({reason})") as error:
        dataset.read(0)
    assert "\n" not in str(error.value)


def test_index_outside_the_data_set_is_an_error(root, cache):
    dataset = ClassFolders(str(root), "train", cache)
    for index in (4, -1):
        with pytest.raises(IndexError):
            dataset.read(index)


def test_a_thousand_class_names_do_not_grow_the_pickle(tmp_path, cache):
    picture = tmp_path / "picture.png"
    save_picture(picture)
    for label in range(1000):
        folder = tmp_path / "many" / "train" / f"class with a long name {label:04d}"
        folder.mkdir(parents=True)
        (folder / "p.png").symlink_to(picture)
    dataset = ClassFolders(str(tmp_path / "many"), "train", cache)
    assert dataset.class_names[999].endswith("0999")
    pickled = pickle.dumps(dataset)
    assert len(pickled) <= 1000
    assert pickle.loads(pickled).class_names == dataset.class_names
