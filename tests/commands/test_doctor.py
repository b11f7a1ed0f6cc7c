"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import json
import os
import sys
from types import SimpleNamespace

import paddle
import pytest
from PIL import Image
from support.failing_checks import CHECKS, WITH_A_TRAINING
from support.processes import ROOT, run_command
from support.runs import PLAIN, TINY

from paddlevit_dist import config, register_dataset
from paddlevit_dist.diagnosis import doctor_machine
from paddlevit_dist.diagnosis.doctor_checks import Check, CheckProcess, Checkup, carried_out, temporary_in
from paddlevit_dist.diagnosis.doctor_data import CHECKS as DATA_CHECKS
from paddlevit_dist.diagnosis.doctor_machine import CHECKS as MACHINE_CHECKS
from paddlevit_dist.diagnosis.doctor_machine import driver_problem, memory_of_machine, output_folder
from paddlevit_dist.diagnosis.doctor_training import CHECKS as TRAINING_CHECKS
from paddlevit_dist.parallel import devices, plan_processes


def test_a_crash_is_one_line_and_the_checks_after_it_are_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    checkup = Checkup(None, tmp_path, 1, False)
    with CheckProcess(checkup, CHECKS, tmp_path / "log") as process:
        for number, check in enumerate(CHECKS):
            checkup.found[check.name] = process.carry_out(number)
    found = checkup.found
    assert found["counts"].text == "0 before this one" and found["again"].text == "3 before this one"
    assert found["crash"].status == "failure" and "ended with SIGSEGV" in found["crash"].text
    assert found["fails"].status == "failure" and found["fails"].text == "KeyError: 'a bug'"


def test_processes_are_started_by_one_that_has_computed_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    with CheckProcess(Checkup(None, tmp_path, 1, True), WITH_A_TRAINING, tmp_path / "log") as process:
        first, second, third = (process.carry_out(number).text for number in range(3))
        assert first == second != third
        with pytest.raises(ProcessLookupError):
            os.kill(int(first), 0)
    starting = {check.name for check in (*MACHINE_CHECKS, *TRAINING_CHECKS) if check.starts_processes}
    assert starting == {"processes", "a step"}


def test_gpus_are_tried_in_their_own_precision_and_given_back(tmp_path, monkeypatch):
    devices_set = []
    monkeypatch.setattr(doctor_machine.devices, "count_gpus", lambda: 2)
    monkeypatch.setattr(paddle, "set_device", devices_set.append)
    monkeypatch.setattr(doctor_machine.gpu, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(doctor_machine.gpu, "rounds_to_tf32", lambda: True)
    monkeypatch.setattr(doctor_machine.gpu, "check_product", lambda size: {"gigaflops": 1.0, "relative_error": 3e-4})
    monkeypatch.setattr(paddle.device.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=2**30))
    monkeypatch.setattr(paddle.device.cuda, "get_device_name", lambda number: f"GPU {number}")
    values = config.load([PLAIN, "-dataset=digits"]).values
    found = doctor_machine.gpus(Checkup(values, tmp_path, 2, True))
    assert found.status == "ok" and "GPU 1 1.0 GiB, 1 GFLOP/s in TF32" in found.text
    assert devices_set == ["gpu:0", "gpu:1", "cpu"]


def test_two_paddles_in_one_place_are_told_however_their_names_are_spelt(tmp_path, monkeypatch):
    for name in ("paddlepaddle", "paddlepaddle_gpu"):
        metadata = tmp_path / f"{name}-9.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = doctor_machine.versions(Checkup(None, tmp_path, 1, False))
    assert found.status == "failure" and "paddlepaddle and paddlepaddle-gpu are both installed" in found.text


class Pictures:
    """Grey pictures; ``train`` and ``val`` are the labels of the two splits."""

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
        return f"picture {index}"


def looked_at(tmp_path, **changes):
    """What the checks of data find in pictures with these labels."""
    global Changed  # where pickles find it
    Changed = type("Changed", (Pictures,), changes)
    register_dataset("doctors_pictures", Changed)
    words = [PLAIN, *TINY, "-dataset=doctors_pictures", "-batch_size=8", f"-output={tmp_path}"]
    checkup = Checkup(config.load(words).values, tmp_path, 1, False)
    for check in DATA_CHECKS:
        checkup.found[check.name] = carried_out(check, checkup)
    return checkup.found


def test_good_labels_are_told_with_their_shares(tmp_path):
    found = looked_at(tmp_path, train=[0] * 30 + [1] * 20 + [2] * 10)
    assert [finding.status for finding in found.values()] == ["ok"] * 5
    assert "cat 30 (50%), dog 20 (33%), cow 10 (17%)" in found["labels"].text
    assert found["samples"].facts["opened"] == 75


@pytest.mark.parametrize(
    "labels, status, text",
    [
        ({"train": [1] * 60}, "failure", "all training labels are the same, dog"),
        ({"val": [0, 1] * 8}, "warning", "without any in val: cow"),
        ({"train": [0, 2] * 30}, "warning", "in val, but not in train: dog"),
        ({"train": [0, 2] * 30, "val": [0, 2]}, "warning", "without any in train: dog"),
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
    samples = found["samples"]
    assert samples.status == "failure" and len(samples.facts["unreadable"]) == 4  # 3 and 4 of both splits
    assert any("train 3 (picture 3): OSError: its disk is gone" in line for line in samples.facts["unreadable"])
    assert any("train 4 (picture 4): label 5 is out of range" in line for line in samples.facts["unreadable"])
    assert found["labels"].status == "ok"


def test_the_output_folder_is_left_as_it_was(tmp_path):
    with temporary_in(str(tmp_path / "a" / "b")) as (folder, problem):
        values = config.load([PLAIN, "-dataset=digits", f"-output={tmp_path / 'a' / 'b'}"]).values
        found = output_folder(Checkup(values, folder, 1, False, problem))
        assert found.facts["write_mib_per_second"] > 0 and list(folder.iterdir()) == []
        assert folder.parent == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with temporary_in(str(tmp_path / "file" / "run")) as (folder, problem):
        found = carried_out(Check("output", output_folder), Checkup(values, folder, 1, False, problem))
    assert found.status == "failure" and "Not a directory" in found.text
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and not folder.exists()


def test_drivers_are_judged_by_nvidias_table():
    assert driver_problem("11.8", "470.57.02") is None
    assert driver_problem("12.6", "535.104.05") is None
    assert "CUDA 12.6 needs a driver from 525 on, and this is 470.57.02" in driver_problem("12.6", "470.57.02")
    assert driver_problem("12.6", None) is None


def test_memory_is_that_of_the_machine_or_less():
    total, available = memory_of_machine()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available <= total <= pages * 1.01


@pytest.mark.long
def test_a_whole_checkup_finds_a_rate_that_teaches_nothing(tmp_path):
    words = [PLAIN, *TINY, "-dataset=digits", "-batch_size=32", "DATA.IMAGE_CHANNELS", "1", "-ngpus=2"]
    command = [sys.executable, "-m", "paddlevit_dist", "doctor", "-json", *words, "TRAIN.BASE_LR", "1e-9"]
    ended = run_command([*command, f"-output={tmp_path / 'run'}"], timeout=300)
    document = json.loads(ended.out)
    status = {check["name"]: check["status"] for check in document["checks"]}
    assert ended.code == 1 and document["ok"] is False, ended.out
    assert [name for name, value in status.items() if value == "failure"] == ["one batch"]
    assert all(status[name] == "ok" for name in ("a step", "processes", "labels", "loss at start"))
    assert list(tmp_path.iterdir()) == []


def test_accelerators_that_are_not_used_are_named(tmp_path, monkeypatch):
    assert devices.other_accelerators() == ""  # what Paddle says here, by its own functions
    assert devices.other_accelerators({"npu": 8, "xpu": 0, "gcu": 1}) == "8 npu, 1 gcu"
    monkeypatch.setattr(devices, "other_accelerators", lambda: "8 npu")
    assert plan_processes(1, gpus=0).notices == [
        "note: Paddle reports 8 npu, which is not used here: training on the CPU"
    ]
    assert plan_processes(1, gpus=1).notices == []
    found = doctor_machine.gpus(None)
    assert found.status == "warning" and "Paddle reports 8 npu, which is not used: training on the CPU" in found.text
