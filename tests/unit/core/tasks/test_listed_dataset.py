"""A class with a length and samples by index is a dataset of any task."""

import pickle

import numpy as np
import paddle
import pytest
from PIL import Image
from support.registrations import forgotten

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.task_factory import make_task


class Halves(paddle.io.Dataset):
    """The half of an image that is bright."""

    class_names = np.unique(["bottom", "top"])

    def __init__(self, split, size=6):
        self.labels = ["top", "bottom"] * (size // 2 if split == "train" else 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        pixels = np.full((16, 16), 40, np.uint8)
        pixels[:8] += 100 * (self.labels[index] == "top")
        return Image.fromarray(pixels), self.labels[index]


class Needing(Halves):
    def __init__(self, split, mode):
        super().__init__(split)


def open_split(kind, folder, split="train"):
    with forgotten():
        register_dataset("halves", kind)
        values = load(["-cfg=vit_digits", "-dataset=halves", f"-output={folder}"]).values
        return make_task(values).build_dataset(split, folder)


def test_a_dataset_of_paddle_is_read_as_a_dataset_of_images(tmp_path):
    opened = open_split(Halves, tmp_path)
    assert len(opened) == 6 and list(opened.class_names) == ["bottom", "top"]
    assert opened.dataset.labels.tolist() == [1, 0] * 3 and opened.describe_classes() == ": bottom 3, top 3"
    for samples in (opened, pickle.loads(pickle.dumps(opened))):
        image, label = samples.dataset.read(1)
        assert (image.mode, image.size, label, samples.dataset.describe(1)) == ("L", (16, 16), 0, "sample 1")
    assert len(open_split(Halves, tmp_path, "val")) == 2


class Dated(Halves):
    groups_by = {"day": r"^(\d)-"}
    notices = ["four days"]
    keypoint_sets = ["those of a task of keypoints"]
    root = "/data"

    def identity(self, index):
        return f"{index // 2}-{index}"


def test_what_a_registered_class_says_of_its_samples_is_taken_over(tmp_path):
    samples = open_split(Dated, tmp_path)
    assert samples.groups("day").names.tolist() == ["0", "0", "1", "1", "2", "2"]
    dataset = samples.dataset
    assert (dataset.notices, dataset.keypoint_sets, dataset.root) == (Dated.notices, Dated.keypoint_sets, "/data")


def test_a_class_with_other_arguments_is_refused_by_their_names(tmp_path):
    with pytest.raises(UserError, match="^dataset Needing takes mode: a registered class takes some of data_path, spl"):
        open_split(Needing, tmp_path)


def test_a_class_that_is_no_list_is_refused_as_before(tmp_path):
    with pytest.raises(UserError, match="^dict is not derived from ImageDataset"):
        open_split(dict, tmp_path)
