"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import os

import numpy as np
import pytest
from PIL import Image
from support.runs import PLAIN, TINY

from paddlevit_dist import register_dataset, settings
from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.debug.doctor_checks import CheckContext, read_memory, run_check
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.launch import devices
from paddlevit_dist.runtime import device_kinds, paddle_versions

MACHINE = devices.ProcessPlan(1, "cpu", False, [])


def test_two_paddles_in_one_place_are_told_however_their_names_are_spelled(tmp_path, monkeypatch):
    for name in ("paddlepaddle", "paddlepaddle_gpu"):
        metadata = tmp_path / f"{name}-9.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = doctor_checks.check_versions(CheckContext(None, tmp_path, MACHINE))
    assert found.status == "failure" and "paddlepaddle and paddlepaddle-gpu are both installed" in found.text


CARDS = {
    "P100": ((6, 0), (12, 4), "paddlepaddle-gpu==2.6.2 'numpy<2'"),
    "V100": ((7, 0), (11, 8), "paddlepaddle-gpu==3.3.1 -i https://www.paddlepaddle.org.cn/packages/stable/cu118/"),
    "RTX 4090": ((8, 9), (12, 0), "/cu126/"),
    "H100": ((9, 0), (12, 4), "/cu126/"),
    "B200": ((10, 0), (12, 8), "/cu129/"),
    "RTX 5090": ((12, 0), (13, 0), "/cu129/"),
}


def see_gpus(monkeypatch, card: devices.GpuCard | None, is_usable: bool, has_cuda: bool) -> doctor_checks.CheckResult:
    """What the check of GPUs finds where the driver shows two of this card."""
    monkeypatch.setattr(devices, "expected_gpus", lambda: 2)
    monkeypatch.setattr(devices, "find_newest_card", lambda: card)
    monkeypatch.setattr(devices, "count_gpus", lambda: 2 * is_usable)
    monkeypatch.setattr(device_kinds, "is_built_for_cuda", lambda: has_cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return doctor_checks.check_gpus(None)


@pytest.mark.parametrize("capability, cuda, command", CARDS.values(), ids=CARDS)
def test_beside_a_cpu_build_the_build_for_the_card_is_named(monkeypatch, capability, cuda, command):
    found = see_gpus(monkeypatch, devices.GpuCard(capability, cuda), is_usable=False, has_cuda=False)
    assert found.status == "warning" and f"compute capability {capability[0]}.{capability[1]}" in found.text
    remove = "python -m pip uninstall -y paddlepaddle paddlepaddle-gpu; python -m pip install "
    assert found.fix.startswith(remove) and found.fix.endswith(f"{command}; or train on the CPU")


def test_a_driver_that_says_nothing_of_its_cards_leaves_the_page(monkeypatch):
    found = see_gpus(monkeypatch, None, is_usable=False, has_cuda=False)
    assert found.status == "warning" and "docs/guides/installation.md" in found.fix


@pytest.mark.parametrize("name", CARDS)
def test_a_paddle_without_code_for_the_card_is_found(monkeypatch, name):
    """The registry's 2.6.2 counts a GPU newer than Ada as one that it can use."""
    monkeypatch.setattr(paddle_versions, "is_built_for_cuda_11", lambda: True)
    capability, cuda, command = CARDS[name]
    found = see_gpus(monkeypatch, devices.GpuCard(capability, cuda), is_usable=True, has_cuda=True)
    is_too_new = name in ("H100", "B200", "RTX 5090")
    assert found.status == ("warning" if is_too_new else "ok") and found.text.startswith("2 usable")
    assert found.fix.endswith(command) if is_too_new else not found.fix
    monkeypatch.setattr(paddle_versions, "is_built_for_cuda_11", lambda: False)
    assert see_gpus(monkeypatch, devices.GpuCard(capability, cuda), is_usable=True, has_cuda=True).status == "ok"


def test_numpy_2_beside_a_paddle_that_was_built_for_numpy_1_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(paddle_versions, "_IS_3", False)
    monkeypatch.setattr(np, "__version__", "2.4.6")
    assert "was built for NumPy 1, and this is 2.4.6" in paddle_versions.notes()[0]
    found = doctor_checks.check_versions(CheckContext(None, tmp_path, MACHINE))
    assert found.status == "failure" and found.fix == "python -m pip install 'numpy<2'"
    monkeypatch.setattr(np, "__version__", "1.26.4")
    assert not paddle_versions.needs_older_numpy()


class Images(ImageDataset):
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


def looked_at(tmp_path, **changes):
    """What the checks of data find in images with these labels."""
    global Changed  # where pickles find it
    Changed = type("Changed", (Images,), changes)
    register_dataset("doctors_images", Changed)
    words = [PLAIN, *TINY, "-dataset=doctors_images", "-batch_size=8", f"-output={tmp_path}"]
    checkup = CheckContext(settings.load(words).values, tmp_path, MACHINE)
    for check in doctor_checks.DATA_CHECKS[:2]:
        checkup.results[check.name] = run_check(check, checkup)
    return checkup.results


def test_good_labels_are_told_with_their_shares(tmp_path):
    found = looked_at(tmp_path, train=[0] * 30 + [1] * 20 + [2] * 10)
    assert [finding.status for finding in found.values()] == ["ok"] * 2
    assert "cat 30 (50%), dog 20 (33%), cow 10 (17%)" in found["labels"].text
    assert "75 opened at random" in found["data"].text


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
    found = looked_at(tmp_path, **labels)["labels"]
    assert found.status == status and text in found.text and found.fix


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
    total, available = read_memory()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available <= total <= pages * 1.01
