"""Folders of YOLO without images of a split: what is said of them."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.yolo_files import list_images, read_description


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        (["images/1.jpg", "labels/1.txt"], "val", r"set DATA.VAL_FRACTION to split the training set"),
        (["1.jpg"], "val", r"set DATA.VAL_FRACTION to split the training set"),
        (["train/1.jpg"], "val", r"yolo at .* 'val'.*train.*set DATA.VAL_FRACTION to split the training set"),
        (["labels/1.txt"], "val", r"yolo at .* has no split 'val' .*: it has none$"),
        (["labels/1.txt"], "train", r"yolo at .* has no split 'train' .*: it has none$"),
        (["images/train/1.txt"], "train", r"^[^;]*: there are no train images$"),
    ],
)
def test_a_split_without_images_is_refused_with_what_there_is(tmp_path, files, split, message):
    touch(tmp_path, *files)
    with pytest.raises(UserError, match=message) as refused:
        list_images(str(tmp_path), split, None)
    assert str(tmp_path) in str(refused.value)


def test_folders_below_images_come_before_those_beside_it(tmp_path):
    touch(tmp_path, "images/train7/2.jpg", "images/train2/1.jpg", "train3/images/3.jpg", "Train/4.jpg", "images/0.jpg")
    assert list_images(str(tmp_path), "train", None) == [f"{tmp_path}/images/train{k}.jpg" for k in ("2/1", "7/2")]
    (tmp_path / "images").rename(tmp_path / "other")
    assert list_images(str(tmp_path), "train", None) == [f"{tmp_path}/{k}.jpg" for k in ("Train/4", "train3/images/3")]


def test_the_description_is_named_where_its_places_have_no_images(tmp_path):
    touch(tmp_path, "photos/1.txt", "more/2.jpg")
    (tmp_path / "data.yaml").write_text("train: photos\nval: more\nnames: [cow, ant]\n")
    description = read_description(str(tmp_path))
    assert list_images(str(tmp_path), "val", description) == [f"{tmp_path}/more/2.jpg"]
    with pytest.raises(UserError, match=r"data\.yaml.*no train images|photos"):
        list_images(str(tmp_path), "train", description)
