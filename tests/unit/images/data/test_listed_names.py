"""Folders of another machine in lists."""

import pytest

from paddlevit_dist.images.data.listed_names import find_foreign_prefix

HERE = {"train/1.png", "train/2.png", "val/3.png", "3.png"}


@pytest.mark.parametrize(
    ("paths", "prefix"),
    [
        (["/a/b/train/1.png", "/a/b/val/3.png"], "/a/b/"),
        (["C:\\data\\train\\1.png", "C:\\data\\train\\2.png"], "C:/data/"),
        (["gone/train/7.png", "gone/train/1.png"], "gone/"),  # a missing image is reported as such
        (["/a/train/3.png", "/a/val/3.png"], "/a/"),  # not "/a/train/", after which 3.png would be another image
        (["/a/train/1.png", "/b/val/3.png"], ""),
        (["train/1.png", "/a/b/val/3.png"], ""),
        (["/a/b/7.png"], ""),
        (["train/1.png"], ""),
        ([], ""),
    ],
)
def test_one_prefix_of_all_paths_is_found(paths, prefix):
    assert find_foreign_prefix(paths, HERE.__contains__) == prefix
