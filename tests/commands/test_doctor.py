"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import os
import signal
import sys

import pytest
from PIL import Image
from support.processes import ROOT, run_command
from support.runs import PLAIN, TINY

from paddlevit_dist import register_dataset, settings
from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.debug.doctor_checks import Check, Checkup, carry_out, memory_of_machine, try_check
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.launch import devices

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


def ends_with_a_signal(*arguments):
    os.kill(os.getpid(), signal.SIGSEGV)


def test_a_crash_of_a_device_is_one_line_and_the_checks_after_it_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "commands")])
    )
    monkeypatch.setattr(doctor_checks, "try_device", ends_with_a_signal)
    checkup = Checkup(settings.load([PLAIN, "-dataset=digits"]).values, tmp_path, MACHINE)

    def fails(_):
        raise KeyError("a bug")

    checks = [*doctor_checks.CHECKS[-1:], Check("fails", fails), Check("needs", fails, ("devices",))]
    carry_out(checkup, checks)
    found = checkup.found
    assert found["devices"].status == "failure" and "SIGSEGV" in found["devices"].text
    assert found["fails"].status == "failure" and found["fails"].text == "KeyError: 'a bug'"
    assert found["needs"].status == "skipped" and found["needs"].text.endswith("'devices' has to be right first")


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


@pytest.mark.long
def test_a_whole_checkup_finds_a_rate_that_teaches_nothing(tmp_path):
    words = [PLAIN, *TINY, "-dataset=digits", "-batch_size=32", "DATA.IMAGE_CHANNELS", "1", "-ngpus=2"]
    command = [sys.executable, "-m", "paddlevit_dist", "doctor", *words, "TRAIN.BASE_LR", "1e-9"]
    ended = run_command([*command, f"-output={tmp_path / 'run'}"], timeout=300)
    lines = {line.split()[1]: line for line in ended.out.splitlines() if line.startswith(("ok ", "failure "))}
    assert ended.code == 1 and [name for name, line in lines.items() if line.startswith("failure")] == ["a"], ended.out
    assert {"devices", "data", "labels"} < set(lines) and lines["a"].startswith("failure  a step")
    assert "ln(classes) is 2.303; after 20 updates" in lines["a"] and "it does not learn" in lines["a"]
    assert abs(float(lines["a"].partition(": loss ")[2].split()[0]) - 2.3) < 0.3
    assert list(tmp_path.iterdir()) == []
