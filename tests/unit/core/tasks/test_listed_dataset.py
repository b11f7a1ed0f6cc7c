"""A class with a length and samples by index is a dataset of any task."""

import pickle

import numpy as np
import paddle
import pytest
from PIL import Image
from support.registrations import forgotten

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.listed_dataset import create_dataset, list_samples
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images import DetectionDataset, ImageDataset
from paddlevit_dist.points import SceneDataset
from paddlevit_dist.volumes import SegmentedVolumes, VolumeDataset


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


class Tiny(ImageDataset):
    """A dataset whose constructor is that of a derived class; ``given`` is what it got."""

    class_names = ["top", "bottom"]

    def __len__(self):
        return 2

    def read(self, index):
        return Image.new("L", (16, 16)), index


class OfSplit(Tiny):
    def __init__(self, split, size=3):
        self.given = split, size


class OfPath(Tiny):
    def __init__(self, data_path=None, split="train"):
        self.given = data_path, split


class OfOwnNames(Tiny):
    def __init__(self, folder, part, cache):
        self.given = folder, part, cache


class OfAnyNames(Tiny):
    def __init__(self, **options):
        self.given = options["data_path"], options["split"], options["cache_folder"]


class OfNothing(Tiny):
    def __init__(self):
        self.given = ()


@pytest.mark.parametrize(
    "kind, expected",
    [
        (OfSplit, ("val", 3)),
        (OfPath, ("data", "val")),
        (OfOwnNames, ("data", "val", "cache")),
        (OfAnyNames, ("data", "val", "cache")),
        (OfNothing, ()),
    ],
)
def test_a_derived_class_gets_the_arguments_that_it_takes(kind, expected):
    assert create_dataset(kind, "data", "val", "cache").given == expected


class WithOptions(Tiny):
    def __init__(self, data_path, split, cache_folder, options="none"):
        self.given = data_path, split, cache_folder, options


def test_a_derived_class_gets_the_options_of_its_task_if_it_takes_them():
    assert create_dataset(WithOptions, "data", "val", "cache").given == ("data", "val", "cache", "none")
    assert create_dataset(WithOptions, "data", "val", "cache", 5).given == ("data", "val", "cache", 5)
    assert create_dataset(OfOwnNames, "data", "val", "cache", 5).given == ("data", "val", "cache")


class OfRootAndSplit(Tiny):
    def __init__(self, root, split):
        self.given = root, split


def test_a_derived_class_with_other_arguments_is_refused_by_their_names():
    with pytest.raises(UserError, match="^dataset OfRootAndSplit takes root: a registered class takes some of data_pa"):
        create_dataset(OfRootAndSplit, "data", "val", "cache")


@pytest.mark.parametrize("number", [2.0, -1, None, "2"])
def test_a_length_that_is_no_whole_number_is_refused(number, tmp_path):
    kind = type("Long", (Halves,), {"__len__": lambda self: number})
    with pytest.raises(UserError, match="^dataset halves has no length: .*: return the number of samples from __len__"):
        open_split(kind, tmp_path)


class Scans(paddle.io.Dataset):
    """Volumes and scenes by index, with what only their tasks ask for."""

    class_names, channels, spacing, rgb_range = ["none", "ball"], ["MR"], (1, 1, 1), (0, 1)

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return {"xyz": [[0, 0, 0]], "rgb": [[1.0, 0.5, 0.0]], "name": index}

    def case(self, index):
        return f"{self.split}_{index}"

    def annotations(self, index):
        return {"boxes": [[1, 2, 4, 6]], "labels": ["ball"], "box_format": "xyxy"}


def test_what_one_task_alone_asks_for_is_taken_over():
    def opened(base):
        return OpenedDataset(list_samples(Scans, base, None, "val", None))

    volumes = opened(SegmentedVolumes)
    assert [volumes.case(index) for index in range(2)] == ["val_0", "val_1"] and volumes.channels == ["MR"]
    assert opened(VolumeDataset).list_class_names() == ["none", "ball"]  # of landmarks
    assert opened(SceneDataset).read(0).rgb.tolist() == [[255, 128, 0]]
    boxes = opened(DetectionDataset).annotations(0)
    assert (boxes.boxes.tolist(), boxes.labels.tolist()) == ([[1, 2, 3, 4]], [1])


def test_a_class_that_lacks_what_its_task_needs_is_refused(tmp_path):
    with forgotten():
        register_dataset("halves", Halves)
        task = make_task(load(["TASK=volume_segmentation", "-dataset=halves"]).values)
        with pytest.raises(UserError, match=r"^dataset Halves lacks case\(index\): .*; add it"):
            task.build_dataset("train", tmp_path)
