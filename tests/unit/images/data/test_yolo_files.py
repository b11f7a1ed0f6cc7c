"""Folders of YOLO without images of a split: what is said of them."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.box_layouts import find_yolo_descriptions
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


def test_one_file_of_a_usual_name_describes_the_data_or_all_others_that_name_classes_and_places(tmp_path):
    for name, content in (
        ("b.yaml", "names: [cow]\ntrain: photos\n"),
        ("a.YML", "path: .\nnames: [cow]\n"),
        ("classes.yaml", "names: [cow]\n"),
        ("places.yaml", "train: photos\n"),
        ("c.txt", "names: [cow]\ntrain: photos\n"),
        ("obj.data", "names = obj.names\ntrain = train.txt\n"),
    ):
        (tmp_path / name).write_text(content)
    expected = [str(tmp_path / name) for name in ("a.YML", "b.yaml", "obj.data")]
    assert find_yolo_descriptions(str(tmp_path)) == expected
    with pytest.raises(UserError, match=r"a\.YML, .*/b\.yaml, .*/obj\.data all describe data: keep one of them"):
        read_description(str(tmp_path))
    for name in ("dataset.yml", "data.yml", "dataset.yaml", "data.yaml"):  # the last is preferred
        (tmp_path / name).write_text("")
        assert find_yolo_descriptions(str(tmp_path)) == [str(tmp_path / name)]
