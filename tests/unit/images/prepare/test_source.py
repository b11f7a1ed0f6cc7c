"""How ``prepare images`` detects what a folder holds."""

import pytest

from paddlevit_dist.images.prepare.source import find_layout, find_splits


@pytest.mark.parametrize(
    ("files", "layout", "splits"),
    [
        (["train/ant/1.jpg"], "folder", ["train"]),
        (["train/ant/1.jpg", "validation/ant/1.jpg"], "folder", ["train", "val"]),
        (["train_list.txt", "val_list.txt"], "imagenet2012", ["train", "val"]),
        (["train_list.txt", "train-0.tar"], "imagenet2012", ["train"]),
        (["val_list.txt", "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"], "tar", ["train", "val"]),
        (["train/ant.tar"], "tar", ["train"]),
        (["train/n01/1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"], "imagenet2012", ["train", "val"]),
    ],
)
def test_layouts(files, layout, splits, tmp_path):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    assert (find_layout(str(tmp_path)), find_splits(str(tmp_path), layout)) == (layout, splits)
