"""Checks of the data: what they find in labels and samples."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.trainings.runs import DIGITS, PLAIN, TINY

from paddlevit_dist import register_dataset
from paddlevit_dist.core import settings
from paddlevit_dist.core.data.sampler import SampleKey, sample_generator
from paddlevit_dist.core.launch import devices
from paddlevit_dist.core.tasks.aspects import TaskAspect
from paddlevit_dist.core.tasks.protocols import Checkable
from paddlevit_dist.extensions.debug import doctor_checks
from paddlevit_dist.extensions.debug.doctor_checks import CheckContext, run_check
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.reading import UnreadableImage

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


def test_a_check_has_the_task_and_the_data_of_a_training_run(tmp_path, monkeypatch):
    words = [*DIGITS, f"-output={tmp_path}", "-eval", "-pretrained=x", "DATA.ON_INVALID_SAMPLE", "stop"]
    config = settings.load(words).values
    context = CheckContext(config, tmp_path / "temporary", MACHINE)
    own = context.task.config
    assert (own.SAVE, own.EVAL, own.MODEL.RESUME, own.DATA.ON_INVALID_SAMPLE) == (
        *(str(tmp_path / "temporary"), False, None, "skip"),
    )
    monkeypatch.setattr(doctor_checks, "open_samples", lambda task, split, folder: folder)
    for there in (None, "data", "named"):
        if there:
            (tmp_path / there).mkdir()
        config = config.clone()
        config.defrost()
        config.DATA.CACHE_FOLDER = str(tmp_path / there) if there == "named" else None
        context = CheckContext(config, tmp_path / "temporary", MACHINE)
        assert context.samples == dict.fromkeys(("train", "val"), tmp_path / (there or "temporary"))


class LabeledImages(ImageDataset):
    """Gray images; ``train`` and ``val`` are the labels of the two splits."""

    num_classes = 3
    class_names = ("cat", "dog", "cow")
    train, val = [0, 1, 2] * 20, [0, 1, 2] * 5

    def __init__(self, data_path, split, cache_folder):
        self.own = getattr(self, split)
        self.blue = 80 if split == "train" else 160

    def __len__(self):
        return len(self.own)

    def read(self, index):
        return Image.new("RGB", (16, 16), (7 * index % 255, 80, self.blue)), self.own[index]

    def describe(self, index):
        return f"image {index}"


def look_at(tmp_path, *words, **changes):
    """Return what the checks of data find in images with these labels."""
    global Changed  # where pickles find it
    Changed = type("Changed", (LabeledImages,), changes)
    register_dataset("doctors_images", Changed)
    words = [PLAIN, *TINY, "-dataset=doctors_images", "-batch_size=8", f"-output={tmp_path}", *words]
    checkup = CheckContext(settings.load(words).values, tmp_path, MACHINE)
    for check in doctor_checks.DATA_CHECKS[:2]:
        checkup.results[check.name] = run_check(check, checkup)
    return checkup.results


def test_good_labels_are_told_with_their_shares(tmp_path):
    found = look_at(tmp_path, train=[0] * 30 + [1] * 20 + [2] * 10)
    assert [finding.status for finding in found.values()] == ["ok"] * 2
    assert "cat 30 (50%), dog 20 (33%), cow 10 (17%)" in found["labels"].text
    assert "75 opened at random" in found["data"].text


def test_some_samples_of_each_split_are_opened_and_timed(tmp_path):
    opened = []

    def read(self, index):
        opened.append((self.blue, index))
        time.sleep(0.004 if self.blue == 80 else 0)
        return LabeledImages.read(self, index)

    found = look_at(tmp_path, "-seed=3", read=read, train=[0, 1, 2] * 35, val=[0, 1, 2] * 7)
    about, _, milliseconds = found["data"].text.removesuffix(" ms for each training sample").rpartition(", ")
    assert about == "train 105 images; val 21 images; 120 opened at random" and 4 <= float(milliseconds) < 400
    orders = [np.random.default_rng(3).permutation(number).tolist() for number in (105, 21)]
    expected = [*((80, index) for index in orders[0][:100]), *((160, index) for index in orders[1][:20])]
    assert opened[-120:] == expected  # before, some are read for their labels


@pytest.mark.parametrize(
    "labels, status, text",
    [
        ({"train": [1] * 60}, "failure", "all training labels are the same, dog"),
        ({"val": [0, 1] * 8}, "warning", "not in val: cow"),
        ({"train": [0, 2] * 30}, "warning", "in val, but not in train: dog"),
        ({"train": [0, 2] * 30, "val": [0, 2] * 8}, "warning", "not in train: dog"),
    ],
)
def test_labels_that_teach_little_are_found(tmp_path, labels, status, text):
    found = look_at(tmp_path, **labels)["labels"]
    assert found.status == status and text in found.text and found.fix


class LabelAspect(TaskAspect, Checkable):
    def get_labels(self, dataset):
        return dataset

    def labels_in(self, sample):
        return sample


class CountedTask:
    """A task whose samples are their labels."""

    aspects = {"Checkable": LabelAspect}

    def __init__(self, **about):
        self.about = about

    def signature(self, dataset):
        return self.about


def count_labels(train, val, opened=None, **about) -> tuple[str, str]:
    context = CheckContext(None, None, MACHINE)
    context.task, context.samples = CountedTask(**about), {"train": train, "val": val}
    context.classes.update(opened or {})
    found = doctor_checks.check_labels(context)
    assert bool(found.fix) == (found.status != "ok")
    return found[:2]


def test_labels_of_a_sample_may_have_any_shape():
    keys = []
    data = SimpleNamespace(labeled=True, sample=lambda index, generator: keys.append(generator.random()) or labels)
    labels = np.array([[1, 2, 0], [0, 2, 2]], np.int32)
    problem, classes = doctor_checks.check_sample(CountedTask(), data, 7, 3)
    assert problem is None and classes.tolist() == [1, 2, 0, 0, 2, 2] and classes.dtype == np.int64
    assert keys == [sample_generator(3, SampleKey(1, 7, 0)).random()]
    data.labeled = False
    assert doctor_checks.check_sample(CountedTask(), data, 7, 3) == (None, None)


def test_classes_are_counted_by_name():
    train, few = np.repeat([0, 1, 2], [1500, 900, 600]), "cat 1,500 (50%), dog 900 (30%), 2 600 (20%)"
    assert count_labels(train, [0, 1, 2], classes=["cat", "dog"]) == ("ok", few)
    assert count_labels(train, np.zeros(0, int), classes=["cat", "dog"]) == ("ok", few)  # nothing is scored
    opened = {"train": np.array([1, 3]), "val": np.array([0, 4])}
    assert count_labels(None, [0], opened) == ("warning", "not in val: 0 (0 1 (25%), 1 3 (75%))")
    assert count_labels([0], None, {"train": opened["train"]}) == ("ok", "0 1 (25%), 1 3 (75%)")
    assert count_labels(None, None) == ("ok", "no classes: every opened sample has the labels that the task needs")
    twenty, more = np.repeat(np.arange(20), np.arange(1, 21)), np.repeat(np.arange(21), np.arange(1000, 1021))
    assert count_labels(twenty, twenty)[1].startswith("0 1 (0%), 1 2 (1%), 2 3 (1%), ")
    assert count_labels(more, more) == ("ok", "21 classes, 1,000 to 1,020 samples each, median 1,010")
    even = np.repeat(np.arange(22), np.arange(1000, 1022))
    assert count_labels(even, even) == ("ok", "22 classes, 1,000 to 1,021 samples each, median 1,010.5")


@pytest.mark.parametrize(
    "train, val, number, said",
    [
        ([0, 0, 1], [0, 1, 3], 0, "in val, but not in train: 3 (0 2 (67%), 1 1 (33%), 2 0 (0%), 3 0 (0%))"),
        ([5, 5, 5, 6], [5, 6], 7, "not in train: c0, 1, 2, 3, 4 (c0 0 (0%), 1 0 (0%), 2 0 (0%), 3 0 (0%), 4 0 (0%), "),
        ([6, 7], [6], 8, "not in train: c0, 1, 2, 3, 4, ... (c0 0 (0%), "),
        ([0, 1, 2], [1, 1], 3, "not in val: c0, 2 (c0 1 (33%), 1 1 (33%), 2 1 (33%))"),
        ([2, 2], [2], 3, "all training labels are the same, 2"),
    ],
)
def test_classes_that_a_split_lacks_are_named(train, val, number, said):
    about = {"number of classes": number, "classes": ["c0"]} if number else {}
    status, text = count_labels(np.array(train), np.array(val), **about)
    assert text.startswith(said) and (number > 6 or text == said)
    assert status == ("failure" if "same" in said else "warning")


def test_samples_that_cannot_be_used_are_listed_and_the_labels_looked_at(tmp_path):
    def read(self, index):
        if index == 3:
            raise OSError("its disk is gone")
        if index == 4:
            raise ValueError("it is cut off")
        return Image.new("RGB", (16, 16)), self.own[index]

    found = look_at(tmp_path, read=read, train=[0, 1, 2] * 20)
    data = found["data"]
    assert data.status == "failure" and data.text.startswith("4 of ")  # 3 and 4 of both splits
    assert "train 3 (image 3): OSError: its disk is gone" in data.text
    assert "train 4 (image 4): ValueError: it is cut off" in data.text
    assert found["labels"].status == "skipped"


def test_a_sample_that_training_would_replace_is_a_warning_and_the_first_five_are_listed(tmp_path):
    def read(self, index):
        if self.blue == 80 and index >= 52:
            raise OSError("gone")
        return LabeledImages.read(self, index)

    data = look_at(tmp_path, "DATA.ON_INVALID_SAMPLE", "skip", read=read)["data"]
    assert data.status == "warning" and data.text.startswith("8 of 75 cannot be used: ") and data.fix
    assert data.text.count(": OSError: gone; ") == 5 and data.text.endswith("; ...")


def test_files_that_were_replaced_are_listed(tmp_path):
    def read(self, index):
        if self.blue == 80 and 20 < index < 24:
            raise UnreadableImage(f"{index}.png", "cut off")
        return LabeledImages.read(self, index)

    data = look_at(tmp_path, "DATA.ON_INVALID_SAMPLE", "skip", read=read)["data"]
    assert data.text == "3 of 75 cannot be used: 21.png: cut off; 22.png: cut off; 23.png: cut off"


def test_a_split_without_samples_is_a_failure(tmp_path):
    assert look_at(tmp_path, val=[])["data"][:2] == ("failure", "dataset doctors_images has no val images")
    context = CheckContext(None, None, MACHINE)
    context.task, context.samples = CountedTask(), {"train": [], "val": []}  # of a task that opens them
    assert doctor_checks.check_data(context)[:2] == ("failure", "train: there are no samples")
