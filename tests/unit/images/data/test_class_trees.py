"""Which folders are label maps, and which files of a class: names alone do not say it, nor gray levels alone."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.class_trees import find_class_tree, find_label_map_folders


def save(path, levels, is_color=False):
    """An image of noise with this many gray levels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = np.random.default_rng(len(str(path)))
    pixels = (seed.integers(0, levels, (24, 32, 3) if is_color else (24, 32)) * 255 // max(levels - 1, 1)).astype(
        np.uint8
    )
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize(
    ("levels", "name", "expected"),
    [
        ((256, 2), "1", {"b": "a"}),
        ((256, 16), "1_mask", {"b": "a"}),
        ((256, 200), "1", {}),  # photographs of equal names, such as mask and no_mask
        ((2, 2), "1", {}),  # binary letters of equal names
        ((256, 2), "2", {}),  # other names
    ],
)
def test_label_maps_have_names_of_images_and_few_gray_levels(tmp_path, levels, name, expected):
    save(tmp_path / "a" / "1.png", levels[0], is_color=levels[0] == 256)
    save(tmp_path / "b" / f"{name}.png", levels[1])
    found = find_label_map_folders([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found == {str(tmp_path / masks): str(tmp_path / images) for masks, images in expected.items()}


def test_label_maps_of_a_class_are_skipped_and_counted(tmp_path, cache):
    root = tmp_path / "data"
    for label in ("cat", "dog"):
        for number in range(3):
            save(root / label / "images" / f"{number}.png", 256, is_color=True)
            save(root / label / "masks" / f"{number}.png", 2)
    save(root / "cat" / "images" / "0_mask.png", 2)
    save(root / "cat" / "images" / "face_mask.png", 2)  # of no image
    dataset = ClassFolders.whole(str(root), cache)
    assert len(dataset) == 7 and dataset.skipped_files.counts == {"label maps": 7}
    assert dataset.skipped_files.num_images == 0  # they are not lost


def test_a_folder_of_label_maps_is_no_class(tmp_path, cache):
    for number in range(3):
        save(tmp_path / "train" / "cat" / f"{number}.png", 256, is_color=True)
        save(tmp_path / "train" / "dog" / f"9{number}.png", 256, is_color=True)
        save(tmp_path / "train" / "cut" / f"{number}.png", 2)
    dataset = ClassFolders(str(tmp_path), "train", cache)
    assert (
        dataset.class_names == ["cat", "dog"]
        and "1 folder of label maps or a copy of others: cut" in dataset.skipped_files.summary()
    )


@pytest.mark.parametrize(
    ("folders", "splits", "labeled"),
    [
        ("Train/a Train/b Test", {"train": "Train", "test": "Test"}, {"train"}),
        ("train_images test_images", {"train": "train_images", "test": "test_images"}, set()),
        ("images_tr/a images_tr/b images_ts", {"train": "images_tr", "test": "images_ts"}, {"train"}),
        ("x/Training/a x/Training/b", {"train": "x/Training"}, {"train"}),
        ("my_train/my_train/a my_train/my_train/b test1", {"train": "my_train/my_train", "test": "test1"}, {"train"}),
        ("train/a/images train/b/images val/images", {"train": "train", "val": "val"}, {"train"}),
        (
            "train/a train/b val/A val/B",
            {"train": "train", "val": "val"},
            {"train", "val"},
        ),  # refused when it is opened
        ("bus car train", {}, set()),
    ],
)
def test_splits_are_found_by_their_words(tmp_path, folders, splits, labeled):
    for folder in folders.split():
        save(tmp_path / folder / f"{folder.replace('/', '_')}.png", 256)
    tree = find_class_tree(str(tmp_path))
    assert tree.splits == splits and tree.labeled == labeled
