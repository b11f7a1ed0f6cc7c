"""Checks of the doctor: what they find, that none stops the others, and that nothing stays behind."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import paddle
import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist.core import distributed
from paddlevit_dist.core.distributed import world
from paddlevit_dist.core.launch import devices
from paddlevit_dist.core.logging import record
from paddlevit_dist.core.runtime import device_kinds, limits, paddle_versions
from paddlevit_dist.extensions.debug import doctor_checks
from paddlevit_dist.extensions.debug.doctor_checks import (
    CheckContext,
    SeenGpus,
    judge_gpus,
    judge_memory,
)

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


def test_numpy_2_beside_a_paddle_that_was_built_for_numpy_1_is_said(tmp_path, monkeypatch, set_versions):
    monkeypatch.setattr(paddle_versions, "_IS_3", False)
    set_versions(numpy="2.4.6")
    found = doctor_checks.check_versions(CheckContext(None, tmp_path, MACHINE))
    assert found.status == "failure" and found.fix == "python -m pip install 'numpy<2'"
    assert "was built for NumPy 1, but NumPy 2.4.6 is installed" in found.text


def test_versions_that_are_known_are_told(set_versions):
    found = doctor_checks.check_versions(None)
    told = dict(entry.split(" ", 1) for entry in found.text.split(", "))
    assert found[::2] == ("ok", "") and told["numba"] == numba.__version__
    assert [name for name, version in record.versions().items() if version != told.get(name)] == []
    assert ("cuda" in told) == ("cudnn" in told) == paddle.is_compiled_with_cuda()
    set_versions(paddle="9.8")
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


def test_speeds_of_all_processes_are_listed(tmp_path, workers):
    def note(started):
        function, arguments, plan, seconds, in_child = started
        assert function is doctor_checks.run_device_test and plan.processes == 2 and seconds == 600 and in_child
        assert arguments[:2] == (True, False) and arguments[3] == (True, "bfloat16", "O2")
        ranks = [{"name": "Xeon", "gigaflops": 81.4}, {"name": "Arm", "gigaflops": 7.6}]
        Path(arguments[2]).write_text(json.dumps(ranks))

    workers.work = note
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
