"""Lists of images in Pascal VOC's layout: names, paths, and the marks of the lists of a class."""

import functools

import pytest
from support.files.coco_writer import refused_by
from support.files.odd_names import ODD_NAMES
from support.files.voc_writer import write_voc

from paddlevit_dist.images.detection.data.voc import Voc

refused = functools.partial(refused_by, Voc)


def read_stems(root, cache, chosen=None):
    """Open the training images, and return their names and the lines about them."""
    dataset = Voc(str(root), "train", cache, chosen)
    return [dataset.describe(index).rpartition("/")[2][:-4] for index in range(len(dataset))], dataset.notices


def write_list(root, text, name="train"):
    (root / "ImageSets" / "Main" / f"{name}.txt").write_text(text, encoding="utf-8", newline="")


def test_a_name_may_have_any_sign(tmp_path, cache):
    write_voc(tmp_path, {"train": ODD_NAMES})
    assert read_stems(tmp_path, cache)[0] == [*ODD_NAMES]
    write_list(tmp_path, "".join(f"JPEGImages/{name}.png\r\n" for name in ODD_NAMES))
    assert read_stems(tmp_path, cache)[0] == [*ODD_NAMES]
    write_list(tmp_path, "".join(f"{name} -1\n" for name in ODD_NAMES))
    assert read_stems(tmp_path, cache)[0] == [*ODD_NAMES]


def test_marks_leave_images_out_of_the_list_of_a_class_only(tmp_path, cache):
    write_voc(tmp_path, {"train": ["a.b", "2", "3", "4"]})
    text = "JPEGImages/2.JPG  1\n3 -1\na.b\n4  0\n"
    for name in ("train", "dog_train"):
        write_list(tmp_path, text, name)
    assert read_stems(tmp_path, cache) == (["2", "3", "a.b", "4"], ["train: 4 images of " + tmp_path.name])
    stems, notices = read_stems(tmp_path, cache, "dog_train")
    assert stems == ["2", "a.b", "4"]
    told = f"1 image of {tmp_path}/ImageSets/Main/dog_train.txt skipped: marked -1, without the class"
    assert notices[1:] == [told]


@pytest.mark.parametrize("line", ["a (1)", "a b", "a -2", "a 1 1"])
def test_a_line_is_not_cut_to_a_name_that_exists(tmp_path, cache, line):
    write_voc(tmp_path, {"train": ["a", "b"]})
    write_list(tmp_path, f"b\n{line}\n")
    assert refused(tmp_path, cache).startswith(f"{tmp_path}/Annotations/{line.removesuffix(' 1')}.xml is missing, but ")


def test_lists_and_annotations_may_have_uppercase_suffixes(tmp_path, cache):
    write_voc(tmp_path, {"train": ["a", "b", "c"]})
    write_list(tmp_path, "b\na\n")
    lists = tmp_path / "ImageSets" / "Main"
    (lists / "train.txt").rename(lists / "train.TXT")
    assert read_stems(tmp_path, cache)[0] == ["b", "a"]
