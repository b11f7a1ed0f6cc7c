"""How ``prepare images`` detects what a folder holds."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.images.data.reading import ReadConfig, UnreadableImage
from paddlevit_dist.images.prepare import source
from paddlevit_dist.images.prepare.source import check_images, find_layout, find_splits, open_input


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


@pytest.mark.parametrize(
    "splits, layout, expected",
    [
        (["train", "val"], None, ["train", "val"]),
        (["train", "val", "test"], None, ["train", "val"]),
        (["train", "test"], "folder", ["train", "test"]),
        (["val"], None, ["train"]),  # all class folders are one set
        (["train"], "imagenet2012", ["train"]),
    ],
)
def test_each_split_is_opened_with_its_reader(splits, layout, expected, tmp_path, monkeypatch):
    opened = []

    def note(kind, split):
        dataset = SimpleNamespace(read_with=lambda config: opened.append((kind, split, config)))
        return dataset

    for split in splits:
        (tmp_path / split / "ant").mkdir(parents=True)
        (tmp_path / split / "ant" / "1.jpg").touch()
    cache = tmp_path / "cache"

    def resolve(kind, name):
        assert kind == "dataset"
        return lambda root, split, folder: note(name, split) if (root, folder) == (str(tmp_path), cache) else None

    monkeypatch.setattr(source, "resolve", resolve)
    monkeypatch.setattr(source.ClassFolders, "whole", lambda root, folder: note("whole", "train"))
    found = open_input(str(tmp_path), layout, 77, cache)
    kind = "whole" if "train" not in splits else layout or "folder"
    assert list(found) == expected
    assert opened == [(kind, split, ReadConfig(max_pixels=77)) for split in expected]


def test_a_file_is_no_data_set(refuse, tmp_path):
    (tmp_path / "a").touch()
    assert refuse(open_input, str(tmp_path / "a"), None, 9, tmp_path) == (
        f"data path {tmp_path}/a is not a folder; expected a folder of images in class folders, lists or tar files"
    )


class Torn:
    """Every hundredth image is torn."""

    def __init__(self, number):
        self.number = number

    def __len__(self):
        return self.number

    def read(self, index):
        if index % 100 == 99:
            raise UnreadableImage(f"{self.number}/{index}", "torn\tfile")


def test_unreadable_images_are_listed_in_their_order(monkeypatch):
    done = []

    def work(function, jobs, workers, total, label):
        done.append(([images for images, _ in jobs], workers, total, label))
        return [function(*arguments) for _, arguments in jobs][::-1]

    monkeypatch.setattr(source, "work", work)
    found = check_images({"train": Torn(300), "val": Torn(129)}, 3)
    assert found == [(f"{path}", "torn\\tfile") for path in ("300/99", "300/199", "300/299", "129/99")]
    assert done == [([128, 128, 44, 128, 1], 3, 429, "checking")]
