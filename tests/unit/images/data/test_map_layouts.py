"""Lists and folders of label maps that are refused, each beside the nearest one that is taken."""

import re

import numpy as np
import pytest
from support.files.label_map_layouts import SIZE, photo, save
from support.files.odd_names import ODD_NAMES
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.map_layouts import find_layout
from paddlevit_dist.images.data.map_pairs import find_pairs


def write_voc(root, lists):
    """Write two images with label maps in Pascal VOC's layout, and lists of names."""
    for stem in ("b", "a"):
        photo(root / "JPEGImages" / f"{stem}.jpg")
        save(root / "SegmentationClass" / f"{stem}.png", np.ones(SIZE))
    folder = root / "ImageSets" / "Segmentation"
    folder.mkdir(parents=True)
    for split, text in lists.items():
        (folder / f"{split}.txt").write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b\n/a.jpg\nb\n", ["b", "a"]),
        ("\n \n", r"train\.txt is empty; expected an image name on each line"),
        ("b\nc\na\n", r"train\.txt names c, but .*JPEGImages has no image of that name$"),
        ("d\nb\nc\n", r"train\.txt names d, c, but .*JPEGImages has no image of that name \(2 of 3 are missing\)"),
    ],
)
def test_a_list_names_images(tmp_path, text, expected):
    write_voc(tmp_path, {"train": text, "val": "a\n"})
    match = find_layout(str(tmp_path), "voc_segmentation")
    if isinstance(expected, list):
        found = find_pairs(match, "train")
        assert found.images == [f"{tmp_path}/JPEGImages/{stem}.jpg" for stem in expected]
        assert found.labels == [f"{tmp_path}/SegmentationClass/{stem}.png" for stem in expected]
        assert found.notices == ["train: 2 images; the published voc_segmentation has 1,464"]
        return
    with pytest.raises(UserError, match=expected):
        find_pairs(match, "train")


def test_a_name_in_a_list_may_have_any_sign(tmp_path):
    write_voc(tmp_path, {"train": "".join(f"{name}\n" for name in ODD_NAMES), "val": "b.jpg b.png\na b\n"})
    for name in ODD_NAMES:
        photo(tmp_path / "JPEGImages" / f"{name}.jpg")
        save(tmp_path / "SegmentationClass" / f"{name}.png", np.ones(SIZE))
    match = find_layout(str(tmp_path), "voc_segmentation")
    assert [image.rpartition("/")[2] for image in find_pairs(match, "train").images] == [f"{n}.jpg" for n in ODD_NAMES]
    with pytest.raises(UserError, match=r"val\.txt names a b, but .* has no image of that name$"):
        find_pairs(match, "val")  # there is a


def test_names_of_pairs_may_have_spaces(tmp_path):
    names = [name for name in ODD_NAMES if "\t" not in name and "\\" not in name and name.strip() == name]
    for name in names:
        photo(tmp_path / "images" / f"{name}.jpg")
        save(tmp_path / "maps" / f"{name}_m.png", np.ones(SIZE))
    for sign in (" ", "\t"):
        lines = [f"images/{name}.jpg{sign}maps/{name}_m.png\n" for name in names]
        (tmp_path / "train.txt").write_text("".join(lines), encoding="utf-8")
        found = find_pairs(find_layout(str(tmp_path)), "train")
        assert found.images == [f"{tmp_path}/images/{name}.jpg" for name in names]
        assert found.labels == [f"{tmp_path}/maps/{name}_m.png" for name in names]


def test_two_images_of_one_name_are_refused(tmp_path):
    write_voc(tmp_path, {"train": "a\n", "val": "b\n"})
    match = find_layout(str(tmp_path), "voc_segmentation")
    photo(tmp_path / "JPEGImages" / "c.png")
    assert len(find_pairs(match, "train").images) == 1
    photo(tmp_path / "JPEGImages" / "b.png")
    with pytest.raises(UserError, match=r"JPEGImages has b\.jpg and b\.png of the same name; rename one"):
        find_pairs(match, "train")


def test_a_folder_that_contains_itself_is_refused(tmp_path):
    write_voc(tmp_path, {"train": "a\n", "val": "b\n"})
    match = find_layout(str(tmp_path), "voc_segmentation")
    (tmp_path / "JPEGImages" / "again").symlink_to(tmp_path / "JPEGImages")
    with pytest.raises(UserError, match=rf"{re.escape(str(tmp_path))}/JPEGImages/again: it is a link to a folder"):
        find_pairs(match, "train")


@pytest.mark.parametrize("name", ["voc_segmentation", "label_maps"])
def test_a_folder_of_two_data_sets_is_read_as_the_named_one(tmp_path, name):
    write_voc(tmp_path, {"train": "a\n", "val": "b\n"})
    (tmp_path / "classes.txt").write_text("none\nrust\n")
    assert find_layout(str(tmp_path)).layout.dataset == "label_maps"
    assert find_layout(str(tmp_path), name).layout.dataset == name


@pytest.mark.parametrize("second", ["JPEGImages/b.jpg", "JPEGImages/b.jpg SegmentationClass/b.txt"])
def test_a_list_of_pairs_is_known_by_its_first_line_and_refused_for_another(tmp_path, second):
    for stem in ("b", "a"):
        photo(tmp_path / "JPEGImages" / f"{stem}.jpg")
        save(tmp_path / "SegmentationClass" / f"{stem}.png", np.ones(SIZE))
    (tmp_path / "train.txt").write_text(f"JPEGImages/a.jpg SegmentationClass/a.png\t\n{second}\n")
    match = find_layout(str(tmp_path))
    assert match.layout.lists == "{split}.txt"
    with pytest.raises(UserError, match=r"train\.txt names no images, or lines without an image and its label map"):
        find_pairs(match, "train")


def test_images_and_label_maps_are_in_the_order_of_their_paths_without_hidden_ones(tmp_path):
    stems = [str(number) for number in (3, 20, 1, 100, 7, 12, 4, 9)]
    for stem in (*stems, "._3", ".5"):
        photo(tmp_path / "images" / "train" / f"{stem}.jpg")
        save(tmp_path / "masks" / "train" / f"{stem}.png", np.ones(SIZE))
    found = find_pairs(find_layout(str(tmp_path)), "train")
    assert found.images == [f"{tmp_path}/images/train/{stem}.jpg" for stem in sorted(stems)]
    assert found.labels == [f"{tmp_path}/masks/train/{stem}.png" for stem in sorted(stems)]
    assert found.notices == []


def test_folders_of_other_names_in_a_split_are_neither_images_nor_label_maps(tmp_path):
    for split in ("train", "val"):
        for folder in ("before", "images"):
            photo(tmp_path / split / folder / "a.jpg")
        for folder in ("depth", "masks"):
            save(tmp_path / split / folder / "a.png", np.ones(SIZE))
    found = find_pairs(find_layout(str(tmp_path)), "val")
    assert (found.images, found.labels) == ([f"{tmp_path}/val/images/a.jpg"], [f"{tmp_path}/val/masks/a.png"])


@pytest.mark.parametrize(
    ("there", "split", "said"),
    [
        (("train", "test"), "val", "it has train, test; set DATA.VAL_FRACTION to split the training set"),
        (("train", "val"), "test", "it has train, val"),
        (("test",), "val", "it has test"),
    ],
)
def test_a_split_that_is_not_there_is_told_with_those_that_are(tmp_path, there, split, said):
    for name in there:
        photo(tmp_path / "images" / name / "a.jpg")
        save(tmp_path / "masks" / name / "a.png", np.ones(SIZE))
    message = refusal_of(find_pairs, find_layout(str(tmp_path)), split)
    assert message == f"dataset label_maps at {tmp_path} has no split '{split}' (-split): {said}"


def test_names_of_images_may_end_as_those_of_label_maps_do_in_a_folder_of_their_own(tmp_path):
    for stem in ("a_mask", "b"):
        photo(tmp_path / "images" / f"{stem}.jpg")
        save(tmp_path / "labels" / f"{stem}_mask.png", np.ones(SIZE))
    found = find_pairs(find_layout(str(tmp_path), "label_maps"), "train")
    assert found.images == [f"{tmp_path}/images/{stem}.jpg" for stem in ("a_mask", "b")]
    assert found.labels == [f"{tmp_path}/labels/{stem}_mask.png" for stem in ("a_mask", "b")]


def test_label_maps_next_to_their_images_are_paired_and_the_others_told(tmp_path):
    for name in ("b.jpg", "a.jpg", "none.jpg", "c_m.jpg"):
        photo(tmp_path / "train" / name)
    for name in ("a_mask.png", "b_mask.png", "alone_mask.png", "c_m_mask.png"):
        save(tmp_path / "train" / name, np.ones(SIZE))
    images, labels, notices = find_pairs(find_layout(str(tmp_path)), "train")
    assert images == [f"{tmp_path}/train/{name}.jpg" for name in ("a", "b", "c_m")]
    assert labels == [f"{tmp_path}/train/{name}_mask.png" for name in ("a", "b", "c_m")]
    assert notices == [
        f"1 images of train have no label map and are skipped, such as {tmp_path}/train/none.jpg",
        f"1 label maps of train have no image and are skipped, such as {tmp_path}/train/alone_mask.png",
    ]


def test_images_and_label_maps_of_other_names_are_refused_with_examples(tmp_path):
    for name in ("b", "a"):
        photo(tmp_path / "images" / f"{name}.jpg")
        save(tmp_path / "masks" / f"x{name}.png", np.ones(SIZE))
    assert refusal_of(find_pairs, find_layout(str(tmp_path)), "train") == (
        f"no image of {tmp_path}/images has a label map in {tmp_path}/masks: expected equal names, found a.jpg and "
        "xa.png, for example"
    )
    photo(tmp_path / "images" / "c.jpg")
    save(tmp_path / "masks" / "c.png", np.ones(SIZE))
    assert find_pairs(find_layout(str(tmp_path)), "train") == (
        [f"{tmp_path}/images/c.jpg"],
        [f"{tmp_path}/masks/c.png"],
        [
            f"2 images of train have no label map and are skipped, such as {tmp_path}/images/a.jpg",
            f"2 label maps of train have no image and are skipped, such as {tmp_path}/masks/xa.png",
        ],
    )


def test_endings_of_published_names_may_be_in_capitals(tmp_path):
    for name in ("aachen_000000_000019", "aachen_000001_000019"):
        photo(tmp_path / "leftImg8bit" / "train" / "aachen" / f"{name}_leftImg8bit.PNG")
        save(tmp_path / "gtFine" / "train" / "aachen" / f"{name}_gtFine_labelIds.PNG", np.ones(SIZE))
    match = find_layout(str(tmp_path))
    found = find_pairs(match, "train")
    assert match.layout.dataset == "cityscapes" and len(found.images) == len(found.labels) == 2
    assert all(label.endswith("_labelIds.PNG") for label in found.labels)
