"""A user's images in class folders."""

import os
import pickle
import shutil

import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data import class_folders
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.class_trees import find_class_tree
from paddlevit_dist.images.data.guessing import guess


@pytest.fixture
def root(tmp_path):
    """Two classes: train/{cat,dog} with two images each, val/{cat,dog} with one."""
    folder = tmp_path / "pets"
    for name in ("train/dog/2", "train/dog/1", "train/cat/4", "train/cat/3", "val/cat/5", "val/dog/6"):
        save_image(folder / f"{name}.png")
    return folder


def save_image(path, color=(10, 200, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 9), color).save(path)


def files(dataset):
    """(path below the dataset's folder, label) of each sample."""
    return [(os.path.relpath(dataset.describe(i), dataset.root), int(dataset.labels[i])) for i in range(len(dataset))]


def test_images_are_sorted_by_class_and_path_at_any_depth(root, cache, monkeypatch):
    bars = []
    monkeypatch.setattr(class_folders, "tqdm", lambda items, **options: bars.append((items, options)) or items)
    save_image(root / "train" / "dog" / "small" / "brown" / "0.png")
    save_image(root / "train" / "dog" / "folder.png" / "7.png")
    dataset = ClassFolders(str(root), "train", cache)
    assert dataset.class_names == ["cat", "dog"] and dataset.num_classes == 2
    options = {"desc": "listing train", "unit": "class", "disable": None, "leave": False}  # None: on terminals alone
    assert bars == [(["cat", "dog"], options)]
    assert files(dataset) == [
        ("train/cat/3.png", 0),
        ("train/cat/4.png", 0),
        ("train/dog/1.png", 1),
        ("train/dog/2.png", 1),
        ("train/dog/folder.png/7.png", 1),
        ("train/dog/small/brown/0.png", 1),
    ]
    assert [dataset.read(i)[1] for i in range(6)] == [0, 0, 1, 1, 1, 1]
    for index in (6, -1):
        with pytest.raises(IndexError):
            dataset.read(index)


def test_symbolic_links_are_followed_but_not_round_in_a_circle(root, cache, tmp_path):
    save_image(tmp_path / "elsewhere" / "far.png", (1, 2, 3))
    (root / "train" / "ape").symlink_to(tmp_path / "elsewhere")
    (root / "train" / "cat" / "linked.png").symlink_to(tmp_path / "elsewhere" / "far.png")
    dataset = ClassFolders(str(root), "train", cache)
    assert dataset.class_names == ["ape", "cat", "dog"]
    assert files(dataset)[:1] + files(dataset)[3:4] == [("train/ape/far.png", 0), ("train/cat/linked.png", 1)]
    assert dataset.read(0)[0].getpixel((0, 0)) == dataset.read(3)[0].getpixel((0, 0)) == (1, 2, 3)
    (root / "train" / "cat" / "again").symlink_to(root / "train")
    with pytest.raises(UserError, match=r"again.* is a link to a folder that contains it"):
        ClassFolders(str(root), "train", cache)


@pytest.mark.parametrize("missing, taken", [(0, "val"), (1, "valid"), (2, "validation"), (3, "test")])
def test_val_folder_has_four_names_in_order_of_preference(root, cache, missing, taken):
    shutil.rmtree(root / "val")
    for name in ("val", "valid", "validation", "test")[missing:]:
        save_image(root / name / "cat" / "x.png")
    assert files(ClassFolders(str(root), "val", cache)) == [(f"{taken}/cat/x.png", 0)]


def test_val_labels_are_those_of_train_and_its_own_without(root, cache):
    shutil.rmtree(root / "val" / "cat")
    dataset = ClassFolders(str(root), "val", cache)
    assert files(dataset) == [("val/dog/6.png", 1)] and dataset.class_names == ["cat", "dog"]
    shutil.rmtree(root / "train")
    dataset = ClassFolders(str(root), "val", cache)
    assert files(dataset) == [("val/dog/6.png", 0)] and dataset.class_names == ["dog"]


def test_a_validation_class_may_be_empty_unless_all_are(root, cache):
    (root / "val" / "cat" / "5.png").unlink()
    assert files(ClassFolders(str(root), "val", cache)) == [("val/dog/6.png", 1)]
    (root / "val" / "dog" / "6.png").unlink()
    with pytest.raises(UserError, match=rf"{root}/val contains no images"):
        ClassFolders(str(root), "val", cache)


@pytest.mark.parametrize(
    "change, split, message",
    [
        (lambda root: save_image(root / "val/emu/1.png"), "val", "'emu' of .*/val does not exist in .*/train"),
        (
            lambda root: [save_image(root / f"val/{name}/1.png") for name in ("fox", "emu", "gnu")],
            "val",
            r"^class folder 'emu' \(and 2 more\) of .*/val does not exist in .*/train; validation classes must be ",
        ),
        (lambda root: (root / "train/eel").mkdir(), "train", "class folder .*/train/eel contains no images"),
        (
            lambda root: (shutil.rmtree(root / "train"), save_image(root / "train/a.png")),
            "train",
            "/train has no class folders",
        ),
        (
            lambda root: shutil.rmtree(root / "val"),
            "val",
            "has no folder val/<class>/ or valid/<class>/ or validation/<class>/",
        ),
        (lambda root: shutil.rmtree(root), "train", "data path .*pets does not exist"),
    ],
)
def test_what_is_missing_or_too_much_is_named(change, split, message, root, cache):
    change(root)
    with pytest.raises(UserError, match=message):
        ClassFolders(str(root), split, cache)


def test_a_path_must_be_given(cache):
    with pytest.raises(UserError, match=r"folder needs -data_path=.*train/<class>/"):
        ClassFolders(None, "train", cache)


def test_the_index_is_kept_until_the_images_change(root, cache):
    ClassFolders(str(root), "train", cache)
    first = {file.name: file.stat().st_ino for file in cache.iterdir()}
    ClassFolders(str(root), "train", cache)
    assert {file.name: file.stat().st_ino for file in cache.iterdir()} == first and len(first) == 1
    (root / "train" / "dog" / "1.png").rename(root / "train" / "cat" / "1.png")
    assert files(ClassFolders(str(root), "train", cache))[0] == ("train/cat/1.png", 0)
    save_image(root / "train" / "cat" / "0.png")
    assert files(ClassFolders(str(root), "train", cache))[0] == ("train/cat/0.png", 0)


def test_a_thousand_class_names_do_not_grow_the_pickle(tmp_path, cache):
    image = tmp_path / "image.png"
    save_image(image)
    for label in range(1000):
        folder = tmp_path / "many" / "train" / f"class with a long name {label:04d}"
        folder.mkdir(parents=True)
        (folder / "p.png").symlink_to(image)
    dataset = ClassFolders(str(tmp_path / "many"), "train", cache)
    assert dataset.class_names[999].endswith("0999")
    pickled = pickle.dumps(dataset)
    assert len(pickled) <= 1000
    assert pickle.loads(pickled).class_names == dataset.class_names


NAMES = [
    ("Train", "Val"),
    ("TRAIN", "VALID"),
    ("Training", "Validation"),
    ("train_set", "val_set"),
    ("TrainSet", "ValSet"),
]
NAMES += [("seg_train", "seg_val"), ("train_images", "validation_images"), ("asl_alphabet_train", "asl_alphabet_valid")]


@pytest.mark.parametrize("names", NAMES)
def test_names_that_contain_a_split_are_splits(root, cache, names):
    for old, new in zip(("train", "val"), names):
        (root / old).rename(root / f"{new}_")
        (root / f"{new}_").rename(root / new)
    for split, name, number in zip(("train", "val"), names, (4, 2)):
        dataset = ClassFolders.whole(str(root), cache) if split == "train" else ClassFolders(str(root), split, cache)
        assert len(dataset) == number and dataset.class_names == ["cat", "dog"]
        assert dataset.notices == [f"note: the {split} images are those in {root / name}"]
        assert {file.split("/")[0] for file, _ in files(dataset)} == {name}
    assert ClassFolders.has_validation(str(root))


@pytest.mark.parametrize("names", [("seg_train", "seg_val"), ("train", "val")])
def test_splits_in_a_folder_of_the_same_name_are_found(root, cache, names):
    for split, name in zip(("train", "val"), names):
        (root / split).rename(root / "inner")
        (root / name).mkdir()
        (root / "inner").rename(root / name / name)
    for split, name, number in zip(("train", "val"), names, (4, 2)):
        dataset = ClassFolders.whole(str(root), cache) if split == "train" else ClassFolders(str(root), split, cache)
        assert len(dataset) == number and dataset.class_names == ["cat", "dog"]
        assert dataset.notices == [f"note: the {split} images are those in {root / name / name}"]


@pytest.mark.parametrize("name", ["test", "Testing", "test_set"])
def test_a_folder_of_test_images_is_no_validation(root, cache, name):
    (root / "val").rename(root / name)
    assert not ClassFolders.has_validation(str(root))  # so that a part of train is held out
    assert len(ClassFolders(str(root), "test", cache)) == 2
    dataset = ClassFolders(str(root), "val", cache)
    assert dataset.notices == [f"note: the val images are those in {root / name}"]
    assert dataset.published_as == {"split": name}
    if name == "test":
        shutil.rmtree(root / "train")
        assert ClassFolders.has_validation(str(root))


def test_classes_with_a_split_s_word_in_their_name_stay_classes(root, cache):
    (root / "train").rename(root / "bullet_train")
    (root / "val").rename(root / "bus")
    assert ClassFolders.whole(str(root), cache).class_names == ["bullet_train", "bus"]


@pytest.mark.parametrize("name", ["train", "training", "val", "valid", "validation", "test", "testing"])
def test_a_folder_with_a_split_s_name_is_a_class_where_no_classes_lie_below(root, cache, name):
    for class_name in ("cat", "dog"):
        (root / "train" / class_name).rename(root / class_name)
    shutil.rmtree(root / "train")
    shutil.rmtree(root / "val")
    shutil.copytree(root / "cat", root / name)
    assert guess(str(root)).dataset == "folder" and not ClassFolders.has_validation(str(root))
    assert not ClassFolders.has_validation(None) and not ClassFolders.has_validation(str(root / "nowhere"))
    dataset = ClassFolders.whole(str(root), cache)
    assert dataset.class_names == sorted(["cat", "dog", name])
    assert {file.split("/")[0] for file, label in files(dataset) if dataset.class_names[label] == name} == {name}
    (root / name / "deep").mkdir()
    assert list(find_class_tree(str(root)).splits.values()) == [name]  # now it has a class


def test_flat_folders_of_splits_alone_are_no_classes(root, cache):
    for split in ("train", "val"):
        for file in (root / split).glob("*/*"):
            file.rename(root / split / file.name)
        for folder in ("cat", "dog"):
            (root / split / folder).rmdir()
    with pytest.raises(UserError, match="train has no class folders"):
        ClassFolders.whole(str(root), cache)


def test_two_folders_for_one_split_are_refused(root, cache):
    (root / "train").rename(root / "seg_train")
    shutil.copytree(root / "seg_train", root / "Training_2")
    with pytest.raises(UserError, match="has Training_2 and seg_train, which may all be the train images"):
        ClassFolders(str(root), "train", cache)
