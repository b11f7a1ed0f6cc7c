"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import json
import math
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import paddle
import pytest
from PIL import Image
from support.thread_ranks import ThreadRanks
from support.trainings.runs import DIGITS, PLAIN, TINY

from paddlevit_dist import distributed, register_dataset, settings
from paddlevit_dist.data.sampler import SampleKey, sample_generator
from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.debug.doctor_checks import (
    CheckContext,
    SeenGpus,
    judge_gpus,
    judge_memory,
    judge_steps,
    measure_steps,
    run_check,
)
from paddlevit_dist.distributed import world
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.reading import UnreadableImage
from paddlevit_dist.launch import devices, spawn
from paddlevit_dist.logging import record
from paddlevit_dist.runtime import device_kinds, limits, paddle_versions
from paddlevit_dist.tasks.aspects import TaskAspect
from paddlevit_dist.tasks.protocols import Checkable
from paddlevit_dist.tasks.step_types import LossTerm, StepPosition

MACHINE = devices.ProcessPlan(1, "cpu", False, [])
FLOAT32 = False, "float16", "O1"


def test_two_paddles_in_one_place_are_told_however_their_names_are_spelled(tmp_path, monkeypatch):
    for name in ("paddlepaddle", "paddlepaddle_gpu"):
        metadata = tmp_path / f"{name}-9.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    (tmp_path / "broken-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = doctor_checks.check_versions(CheckContext(None, tmp_path, MACHINE))
    assert found.status == "failure" and "paddlepaddle and paddlepaddle-gpu are both installed" in found.text


INDEX = "paddlepaddle-gpu==3.3.1 -i https://www.paddlepaddle.org.cn/packages/stable"
CARDS = {
    "GTX 980": ((5, 2), (12, 4), None),
    "P100": ((6, 0), (12, 4), "cu118"),
    "GTX 1080": ((6, 1), (11, 4), "cu118"),
    "V100": ((7, 0), (11, 8), "cu118"),
    "V100 with a new driver": ((7, 0), (12, 2), "cu126"),
    "RTX 4090": ((8, 9), (12, 0), "cu126"),
    "RTX 4090 with an old driver": ((8, 9), (11, 8), "cu118"),
    "H100": ((9, 0), (12, 4), "cu126"),
    "H100 with an old driver": ((9, 0), (11, 8), "cu126"),
    "B200": ((10, 0), (12, 8), "cu129"),
    "RTX 5090": ((12, 0), (13, 0), "cu129"),
    "RTX 5090 with an old driver": ((12, 0), (12, 4), "cu129"),
}
DRIVERS = {"H100 with an old driver": "12.0", "RTX 5090 with an old driver": "12.8"}


def expected_fix(name: str) -> str:
    """The command for a card, as the table of the page on installation says."""
    if CARDS[name][2] is None:
        return "Paddle has no build for it"
    driver = f"install an NVIDIA driver for CUDA {DRIVERS[name]} or newer, then " if name in DRIVERS else ""
    remove = "python -m pip uninstall -y paddlepaddle paddlepaddle-gpu; python -m pip install "
    return f"{driver}{remove}{INDEX}/{CARDS[name][2]}/"


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def make_gpus(card: devices.GpuCard | None, usable: int = 0, **changes) -> SeenGpus:
    """What is seen where the driver shows two of this card, beside Paddle's CPU build."""
    return SeenGpus(2, card, usable, {}, "3.3.1", None)._replace(**changes)


@pytest.mark.parametrize("name", CARDS)
def test_beside_a_cpu_build_the_build_for_the_card_is_named(name):
    capability, cuda, _ = CARDS[name]
    found = judge_gpus(make_gpus(devices.GpuCard(capability, cuda)))
    assert found.status == "warning" and f"compute capability {capability[0]}.{capability[1]}" in found.text
    assert found.fix == f"{expected_fix(name)}; or train on the CPU"


def test_a_driver_that_says_nothing_of_its_cards_leaves_the_page():
    found = judge_gpus(make_gpus(None))
    assert found.status == "warning" and "docs/guides/installation.md" in found.fix


@pytest.mark.parametrize(
    "version, cuda, lacking",
    [
        ("2.6.2", "11.8", {"5.2", "6.0", "9.0", "10.0", "12.0"}),
        ("3.3.1", "11.8", {"5.2", "9.0", "10.0", "12.0"}),
        ("3.3.1", "12.6", {"5.2", "6.0", "6.1", "10.0", "12.0"}),
        ("3.3.1", "12.9", set()),
        ("3.3.1", "13.0", set()),
        ("0.0.0", "11.8", set()),
        ("3.3.1", "False", set()),
    ],
)
def test_a_paddle_without_code_for_the_card_is_found(version, cuda, lacking):
    """Paddle counts a GPU that it has no code for as one that it can use."""
    for name, (capability, driver, _) in CARDS.items():
        found = judge_gpus(make_gpus(devices.GpuCard(capability, driver), usable=2, version=version, cuda=cuda))
        is_lacking = f"{capability[0]}.{capability[1]}" in lacking
        assert found.status == ("warning" if is_lacking else "ok") and found.text.startswith("2 usable")
        assert (f"; Paddle {version} for CUDA {cuda} supports " in found.text) == is_lacking
        fix = f"unless you built this Paddle for the card: {expected_fix(name)}"
        assert found.fix == (fix if is_lacking else "")


def test_numpy_2_beside_a_paddle_that_was_built_for_numpy_1_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(paddle_versions, "_IS_3", False)
    monkeypatch.setattr(np, "__version__", "2.4.6")
    found = doctor_checks.check_versions(CheckContext(None, tmp_path, MACHINE))
    assert found.status == "failure" and found.fix == "python -m pip install 'numpy<2'"
    assert "was built for NumPy 1, but NumPy 2.4.6 is installed" in found.text


def test_versions_that_are_known_are_told(monkeypatch):
    found = doctor_checks.check_versions(None)
    told = dict(entry.split(" ", 1) for entry in found.text.split(", "))
    assert found[::2] == ("ok", "") and told["numba"] == numba.__version__
    assert [name for name, version in record.versions().items() if version != told.get(name)] == []
    assert ("cuda" in told) == ("cudnn" in told) == paddle.is_compiled_with_cuda()
    monkeypatch.setattr(paddle, "__version__", "9.8")
    assert doctor_checks.check_versions(None).status == "warning"
    assert doctor_checks.check_versions(None).text.endswith(
        "; Paddle 9.8 is untested; the last version tested with paddlevit_dist is 3.3"
    )


def test_a_numba_that_cannot_be_imported_is_a_failure(tmp_path, monkeypatch):
    (tmp_path / "numba.py").write_text("raise ImportError('needs another NumPy')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    found = doctor_checks.check_versions(None)
    assert found == ("failure", "numba cannot be imported: needs another NumPy", "python -m pip install -U numba")


def test_devices_without_cuda_and_gpus_that_paddle_cannot_use_are_told():
    none = make_gpus(None, driver=0)
    assert judge_gpus(none) == ("ok", "none: training on the CPU", "")
    nouns = [device_kinds.get_kind(name).noun for name in ("npu", "xpu")]
    text = f"no CUDA GPU; 2 {nouns[0]}(s), 1 {nouns[1]}(s) usable through Paddle's plug-in (docs/guides/devices.md)"
    assert judge_gpus(none._replace(others={"npu": 2, "xpu": 1})) == ("ok", text, "")
    status, text, fix = judge_gpus(make_gpus(devices.GpuCard((8, 6), (12, 0)), cuda="11.8"))
    assert (status, fix[:16]) == ("failure", "check `nvidia-sm")
    assert text == "2 GPU(s), compute capability 8.6, none usable by Paddle; CUDA_VISIBLE_DEVICES=not set"


def test_a_check_has_the_task_and_the_data_of_a_training_run(tmp_path):
    words = [*DIGITS, f"-output={tmp_path}", "-eval", "-pretrained=x", "DATA.ON_INVALID_SAMPLE", "stop"]
    config = settings.load(words).values
    context = CheckContext(config, tmp_path / "temporary", MACHINE)
    own = context.task.config
    assert (own.SAVE, own.EVAL, own.MODEL.RESUME, own.DATA.ON_INVALID_SAMPLE) == (
        *(str(tmp_path / "temporary"), False, None, "skip"),
    )
    task = SimpleNamespace(build_dataset=lambda split, folder: folder)
    for there in (None, "data", "named"):
        if there:
            (tmp_path / there).mkdir()
        config = config.clone()
        config.defrost()
        config.DATA.CACHE_FOLDER = str(tmp_path / there) if there == "named" else None
        context = CheckContext(config, tmp_path / "temporary", MACHINE)
        context.task = task
        assert context.samples == dict.fromkeys(("train", "val"), tmp_path / (there or "temporary"))


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


def look_at(tmp_path, *words, **changes):
    """Return what the checks of data find in images with these labels."""
    global Changed  # where pickles find it
    Changed = type("Changed", (Images,), changes)
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
        return Images.read(self, index)

    found = look_at(tmp_path, "-seed=3", read=read, train=[0, 1, 2] * 35, val=[0, 1, 2] * 7)
    about, _, milliseconds = found["data"].text.removesuffix(" ms for each training sample").rpartition(", ")
    assert about == "train 105 images; val 21 images; 120 opened at random" and 4 <= float(milliseconds) < 400
    orders = [np.random.default_rng(3).permutation(number).tolist() for number in (105, 21)]
    assert opened == [*((80, index) for index in orders[0][:100]), *((160, index) for index in orders[1][:20])]


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


class Labels(TaskAspect, Checkable):
    def get_labels(self, dataset):
        return dataset

    def labels_in(self, sample):
        return sample


class Counted:
    """A task whose samples are their labels."""

    aspects = {"Checkable": Labels}

    def __init__(self, **about):
        self.about = about

    def signature(self, dataset):
        return self.about


def count_labels(train, val, opened=None, **about) -> tuple[str, str]:
    context = CheckContext(None, None, MACHINE)
    context.task, context.samples = Counted(**about), {"train": train, "val": val}
    context.classes.update(opened or {})
    found = doctor_checks.check_labels(context)
    assert bool(found.fix) == (found.status != "ok")
    return found[:2]


def test_labels_of_a_sample_may_have_any_shape():
    keys = []
    data = SimpleNamespace(labeled=True, sample=lambda index, generator: keys.append(generator.random()) or labels)
    labels = np.array([[1, 2, 0], [0, 2, 2]], np.int32)
    problem, classes = doctor_checks.check_sample(Counted(), data, 7, 3)
    assert problem is None and classes.tolist() == [1, 2, 0, 0, 2, 2] and classes.dtype == np.int64
    assert keys == [sample_generator(3, SampleKey(1, 7, 0)).random()]
    data.labeled = False
    assert doctor_checks.check_sample(Counted(), data, 7, 3) == (None, None)


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
        return Image.new("RGB", (16, 16)), 5 if index == 4 else self.own[index]

    found = look_at(tmp_path, read=read, train=[0, 1, 2] * 20)
    data = found["data"]
    assert data.status == "failure" and data.text.startswith("4 of ")  # 3 and 4 of both splits
    assert "train 3 (image 3): OSError: its disk is gone" in data.text
    assert "train 4 (image 4): label 5 is out of range" in data.text
    assert found["labels"].status == "skipped"


def test_a_sample_that_training_would_replace_is_a_warning_and_the_first_five_are_listed(tmp_path):
    def read(self, index):
        if self.blue == 80 and index >= 52:
            raise OSError("gone")
        return Images.read(self, index)

    data = look_at(tmp_path, "DATA.ON_INVALID_SAMPLE", "skip", read=read)["data"]
    assert data.status == "warning" and data.text.startswith("8 of 75 cannot be used: ") and data.fix
    assert data.text.count(": OSError: gone; ") == 5 and data.text.endswith("; ...")


def test_files_that_were_replaced_are_listed(tmp_path):
    def read(self, index):
        if self.blue == 80 and 20 < index < 24:
            raise UnreadableImage(f"{index}.png", "cut off")
        return Images.read(self, index)

    data = look_at(tmp_path, "DATA.ON_INVALID_SAMPLE", "skip", read=read)["data"]
    assert data.text == "3 of 75 cannot be used: 21.png: cut off; 22.png: cut off; 23.png: cut off"


def test_a_split_without_samples_is_a_failure(tmp_path):
    assert look_at(tmp_path, val=[])["data"][:2] == ("failure", "val: there are no samples")


@pytest.mark.parametrize(
    "total, used, names",
    [
        (3 << 20, 1 << 20, ("memory.max", "memory.current")),
        (3 << 20, 5 << 20, ("memory.max", "memory.current")),
        (5 << 20, 2 << 20, ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")),
        ("max", 1 << 20, ("memory.max", "memory.current")),
        (1 << 60, 1 << 20, ("memory.max", "memory.current")),
    ],
)
def test_memory_is_that_of_the_machine_or_of_the_container_if_that_is_less(tmp_path, monkeypatch, total, used, names):
    monkeypatch.setattr(limits, "CONTROL_GROUPS", tmp_path)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "memory").mkdir()
    for name, value in zip(names, (total, used)):
        (tmp_path / name).write_text(f"{value}\n")
    found, available = limits.read_memory()
    if total == "max" or total > pages:
        assert 0 < available <= found <= pages * 1.01 and available > 1 << 20
    else:
        assert (found, available) == (total, max(0, total - used))


def test_each_process_needs_memory():
    found = [judge_memory((9 << 30, 4 << 30), processes) for processes in (1, 2, 3)]
    assert [result.status for result in found] == ["ok", "ok", "warning"]
    assert found[0].text == "4.0 of 9.0 GiB available" and not found[0].fix
    assert found[2].text.endswith("3 process(es) need at least 1.5 GiB each") and "-ngpus" in found[2].fix
    assert judge_memory((9 << 30, 3 << 30), 2).status == judge_memory(None, 2).status == "ok"
    machines = [CheckContext(None, None, MACHINE._replace(processes=number)) for number in (1, 1 << 20)]
    assert [doctor_checks.check_memory(machine).status for machine in machines] == ["ok", "warning"]


FACTS = {"losses": [2.3, 2.2, 1.1], "first": {"loss": 2.3, "unknown": None}, "seconds": 0.125, "memory_mib": 3072.0}
FACTS |= {"trained": 1.0}


@pytest.mark.parametrize(
    "status, fix, changes",
    [
        ("ok", "", {}),
        ("failure", "huge values", {"losses": [math.nan, 2.0, 1.0]}),
        ("failure", "lower TRAIN.BASE_LR", {"losses": [2.3, 2.0, math.inf]}),
        ("failure", "does not learn", {"losses": [2.3, 2.25, 2.29]}),
        ("ok", "", {"losses": [2.3, 2.2, 2.4]}),  # has learned, if not in the end
        ("ok", "", {"losses": [2.3, 2.3, 2.3], "trained": 0.5}),  # is frozen
        ("ok", "", {"losses": [2.3, 2.0, 2.1]}),
        ("ok", "", {"losses": [-1.0, -1.0, -1.0]}),
        ("ok", "", {"losses": [-1.0, 0.5, 0.5]}),
        ("warning", "far from ln(classes)", {"first": {"loss": 1.55}}),
        ("warning", "far from ln(classes)", {"first": {"loss": 3.6}}),
        ("ok", "", {"first": {"loss": 1.7}}),
        ("ok", "", {"first": {"another": 99.0}}),
    ],
)
def test_losses_of_some_updates_are_judged(status, fix, changes):
    facts = FACTS | changes
    found = judge_steps(facts, {"loss": math.log(10)})
    assert found.status == status and fix in found.fix and bool(fix) == bool(found.fix)
    assert ("ln(classes)" in found.text) == ("loss" in facts["first"])
    if "loss" in facts["first"]:
        assert f"{facts['first']['loss']:.4g} at start, ln(classes) is 2.303; after 2 updates with this" in found.text
    assert "unknown" not in found.text and found.text.endswith("s an update, 3.0 GiB")


def test_updates_are_made_by_processes_of_their_own_with_what_the_check_has_read(tmp_path, monkeypatch):
    started = []

    def launch(function, arguments, plan, seconds, in_child):
        started.append((function, arguments, plan, seconds, in_child))
        Path(arguments[-1]).write_text(json.dumps(FACTS))

    monkeypatch.setattr(spawn, "launch_workers", launch)
    words = [*DIGITS, "-accum_iter=3", f"-output={tmp_path}", "-epochs=5", "TRAIN.WARMUP_EPOCHS", "2", "-pretrained=x"]
    checkup = CheckContext(settings.load([*words, "WATCHDOG_SECONDS", "44"]).values, tmp_path, MACHINE)
    found = doctor_checks.check_step(checkup)
    ((function, (config, task, dataset, _), plan, seconds, in_child),) = started
    assert function is doctor_checks.run_device_steps and (plan, seconds, in_child) == (MACHINE, 44, True)
    assert config.TRAIN.WARMUP_EPOCHS == 0 and config.MODEL.PRETRAINED is None and config.SAVE == str(tmp_path)
    assert task is checkup.task and dataset is checkup.samples["train"]
    judged = judge_steps(FACTS, {"loss": math.log(10)})
    assert found == judged._replace(text=f"1 x CPU process, batch 64 x 3: {judged.text}")


@pytest.mark.parametrize(
    "second, status", [(1.0, "ok"), (0.7, "ok"), (1.5, "ok"), (0.69, "warning"), (1.51, "warning")]
)
def test_each_term_of_a_loss_is_near_what_is_expected(second, status):
    found = judge_steps(FACTS | {"first": {"a": 2.0, "b": second}}, {"a": 2.0, "b": 1.0})
    assert found.status == status
    assert f"a 2 at start, b {second:g} at start, ln(classes) is 2, ln(classes) is 1; after 2 updates" in found.text


@pytest.mark.parametrize(
    "losses, seconds, made",
    [
        ([4.0, 3.0, 2.0, 1.0], 0.25, 3),  # until half of the first one
        ([1.0, 4.0, 0.5], 0.25, 3),  # at least one update
        ([4.0, 1.0], 40.0, 2),
        ([4.0] * 30, 1.5, 21),
        ([4.0] * 30, 15.0, 3),  # after 30 seconds none begins
    ],
)
def test_updates_of_two_ranks_are_measured_until_the_loss_is_halved(tmp_path, monkeypatch, losses, seconds, made):
    config = settings.load([*DIGITS, "-accum_iter=2", f"-output={tmp_path}", "TRAIN.BASE_LR", "0.5"]).values
    now, calls = [7.0, 8.0], [[], []]
    model = paddle.nn.Linear(3, 2)
    model.bias.stop_gradient = True
    model.eval()

    def step(batches, position, rate):
        """The second rank has three times the loss and takes twice the time, and the first update thrice."""
        rank = distributed.rank()
        update = len(calls[rank])
        assert (position, rate) == (StepPosition(1, update, 100), 0.5) and model.training
        calls[rank].append([batch.pop("images") for batch in batches])
        now[rank] += seconds * (rank + 1) * (1 if update else 3) if seconds < 1 else seconds * (0.9 + 0.1 * rank)
        loss = losses[update] * (1 + 2 * rank)
        terms = {"ce": LossTerm(paddle.to_tensor(4 * loss), 4, 0.25), "none": LossTerm(paddle.zeros([]), 0, 1.0)}
        return [{**terms, "shown": LossTerm(paddle.to_tensor(9.0), 0, 0.0)}, {}]

    def read(epochs):
        yield from ({"images": (*epochs, number)} for number in range(5))

    monkeypatch.setattr("paddlevit_dist.logging.meters.memory_mib", lambda: 100.0 + 28 * distributed.rank())
    training = SimpleNamespace(model=model, step=step, loader=SimpleNamespace(epochs=lambda *epochs: read(epochs)))
    facts, other = ThreadRanks(2).run(lambda rank: measure_steps(training, config, lambda: now[rank]))
    assert {**other, "seconds": facts["seconds"]} == facts and calls == [[[(1, 1, 0), (1, 1, 1)]] * made] * 2
    assert facts["losses"] == [loss / 2 for loss in losses[:made]] and facts["first"] == {
        "ce": 2 * losses[0],
        "none": 0,
    }
    assert (facts["trained"], facts["memory_mib"]) == (0.75, 128.0)
    assert facts["seconds"] == pytest.approx(seconds if seconds < 1 else 0.9 * seconds)


def test_this_processor_computes_as_it_should(tmp_path):
    doctor_checks.run_device_test(False, False, str(tmp_path / "found.json"), FLOAT32)
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert found["name"] and found["gigaflops"] > 0


def test_processes_whose_ranks_are_not_their_own_are_found(tmp_path, monkeypatch):
    ranks = ThreadRanks(3)
    monkeypatch.setattr(doctor_checks.tuning, "processor", lambda: {"model": ["Xeon", "Arm", None][world.rank()]})
    target = tmp_path / "found.json"
    ranks.run(lambda _: doctor_checks.run_device_test(False, False, str(target), FLOAT32))
    found = json.loads(target.read_text())
    assert [one["name"] for one in found] == ["Xeon", "Arm", "unknown"] and all(one["gigaflops"] > 0 for one in found)
    for numbers, total in (([0, 1, 1], 2), ([0, 2, 1], 3)):
        monkeypatch.setattr(distributed, "rank", lambda numbers=numbers: numbers[world.rank()])
        with pytest.raises(RuntimeError, match=rf"^the ranks of 3 processes add up to {total}, not to 3$"):
            ranks.run(lambda _: doctor_checks.run_device_test(False, False, str(target), FLOAT32))


def test_speeds_of_all_processes_are_listed(tmp_path, monkeypatch):
    def launch(function, arguments, plan, seconds, in_child):
        assert function is doctor_checks.run_device_test and plan.processes == 2 and seconds == 600 and in_child
        assert arguments[:2] == (True, False) and arguments[3] == (True, "bfloat16", "O2")
        ranks = [{"name": "Xeon", "gigaflops": 81.4}, {"name": "Arm", "gigaflops": 7.6}]
        Path(arguments[2]).write_text(json.dumps(ranks))

    monkeypatch.setattr(spawn, "launch_workers", launch)
    config = SimpleNamespace(
        TRAIN=SimpleNamespace(TF32=True),
        DETERMINISTIC=False,
        WATCHDOG_SECONDS=600,
        AMP=False,
        EVAL_AMP=True,
        AMP_DTYPE="bfloat16",
        AMP_LEVEL="O2",
    )
    found = doctor_checks.check_devices(CheckContext(config, tmp_path, MACHINE._replace(processes=2)))
    assert found.status == "ok" and found.text.startswith("2 process(es) (CPU, ")
    assert found.text.endswith(" core(s)) compute correctly and agree: Xeon, 81 GFLOP/s; Arm, 8 GFLOP/s")
