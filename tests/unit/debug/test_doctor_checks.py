"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import os

import pytest
from PIL import Image
from support.runs import PLAIN, TINY

from paddlevit_dist import register_dataset, settings
from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.debug.doctor_checks import Checkup, memory_of_machine, try_check
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.launch import devices

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


def test_two_paddles_in_one_place_are_told_however_their_names_are_spelt(tmp_path, monkeypatch):
    for name in ("paddlepaddle", "paddlepaddle_gpu"):
        metadata = tmp_path / f"{name}-9.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = doctor_checks.versions(Checkup(None, tmp_path, MACHINE))
    assert found.status == "failure" and "paddlepaddle and paddlepaddle-gpu are both installed" in found.text


class Images(ImageDataset):
    """Grey images; ``train`` and ``val`` are the labels of the two splits."""

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


def looked_at(tmp_path, **changes):
    """What the checks of data find in images with these labels."""
    global Changed  # where pickles find it
    Changed = type("Changed", (Images,), changes)
    register_dataset("doctors_images", Changed)
    words = [PLAIN, *TINY, "-dataset=doctors_images", "-batch_size=8", f"-output={tmp_path}"]
    checkup = Checkup(settings.load(words).values, tmp_path, MACHINE)
    for check in doctor_checks.CHECKS_OF_DATA[:2]:
        checkup.found[check.name] = try_check(check, checkup)
    return checkup.found


def test_good_labels_are_told_with_their_shares(tmp_path):
    found = looked_at(tmp_path, train=[0] * 30 + [1] * 20 + [2] * 10)
    assert [finding.status for finding in found.values()] == ["ok"] * 2
    assert "cat 30 (50%), dog 20 (33%), cow 10 (17%)" in found["labels"].text
    assert "75 opened at random" in found["data"].text


@pytest.mark.parametrize(
    "labels, status, text",
    [
        ({"train": [1] * 60}, "failure", "all training labels are the same, dog"),
        ({"val": [0, 1] * 8}, "warning", "without any in val: cow"),
        ({"train": [0, 2] * 30}, "warning", "in val, but not in train: dog"),
        ({"train": [0, 2] * 30, "val": [0, 2] * 8}, "warning", "without any in train: dog"),
    ],
)
def test_labels_that_teach_little_are_found(tmp_path, labels, status, text):
    found = looked_at(tmp_path, **labels)["labels"]
    assert found.status == status and text in found.text and found.mend


def test_samples_that_cannot_be_used_are_listed_and_the_labels_looked_at(tmp_path):
    def read(self, index):
        if index == 3:
            raise OSError("its disk is gone")
        return Image.new("RGB", (16, 16)), 5 if index == 4 else self.own[index]

    found = looked_at(tmp_path, read=read, train=[0, 1, 2] * 20)
    data = found["data"]
    assert data.status == "failure" and data.text.startswith("4 of ")  # 3 and 4 of both splits
    assert "train 3 (image 3): OSError: its disk is gone" in data.text
    assert "train 4 (image 4): label 5 is out of range" in data.text
    assert found["labels"].status == "skipped"


def test_memory_is_that_of_the_machine_or_less():
    total, available = memory_of_machine()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available <= total <= pages * 1.01
