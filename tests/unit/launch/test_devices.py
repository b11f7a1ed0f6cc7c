"""A user with several kinds of devices, or none, is told which is taken."""

import os

import paddle
import pytest

from paddlevit_dist.debug import doctor_checks
from paddlevit_dist.launch import devices
from paddlevit_dist.launch.devices import plan_processes
from paddlevit_dist.runtime import device_kinds
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.runtime.transfers import is_on_gpu


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Sets what Paddle sees on this machine; each test says."""
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)

    def sees(gpus=0, **others):
        monkeypatch.setattr(device_kinds, "count_gpus", lambda: gpus)
        monkeypatch.setattr(device_kinds, "count_others", lambda: others)

    return sees


@pytest.mark.parametrize(
    "gpus, others, asked, taken, said",
    [
        (0, {}, "auto", ("cpu", 1), ""),
        (2, {}, "auto", ("gpu", 2), ""),
        (2, {"npu": 8}, "auto", ("gpu", 2), "device: gpu, of 2 gpu, 8 npu (DEVICE, or -device=, chooses another)"),
        (2, {"npu": 8}, "NPU", ("npu", 8), ""),
        (2, {"npu": 8}, "ascend", ("npu", 8), ""),
        (2, {}, "cuda", ("gpu", 2), ""),
        (2, {}, "cpu", ("cpu", 1), ""),
        (0, {"xpu": 4}, "auto", ("xpu", 4), ""),
        (0, {"cards_of_tomorrow": 3}, "auto", ("cards_of_tomorrow", 3), ""),
    ],
)
def test_an_accelerator_is_taken_cudas_first_or_what_is_asked_for(seen, gpus, others, asked, taken, said):
    seen(gpus, **others)
    plan = plan_processes(-1, device=asked)
    assert (plan.device, plan.processes) == taken and plan.uses_gpu == (taken[0] == "gpu")
    told = [line for line in plan.notices if not line.startswith(f"{taken[0]}: no SyncBatchNorm")]
    assert (told[0] if told else "") == said
    assert len(told) < len(plan.notices) or taken[0] in ("gpu", "cpu")  # what another kind lacks is told


def test_a_device_that_is_not_there_is_refused_with_what_there_is(seen):
    seen(2, npu=8)
    with pytest.raises(
        UserError, match=r"^DEVICE mlu \(-device\): there is none that this Paddle sees: 2 gpu, 8 npu and"
    ):
        plan_processes(-1, device="mlu")
    with pytest.raises(
        UserError, match=r"^DEVICE tpu \(-device\): tpu is not among the kinds of devices that this Paddle"
    ):
        plan_processes(-1, device="tpu")
    with pytest.raises(
        UserError, match="name only the kind, gpu: -ngpus sets the number, and CUDA_VISIBLE_DEVICES chooses"
    ):
        plan_processes(-1, device="cuda:1")
    with pytest.raises(UserError, match="name only the kind, cpu: -ngpus sets the number$"):
        plan_processes(-1, device="cpu:0")


def test_more_than_are_visible_are_refused_with_the_makers_variable(seen, monkeypatch):
    seen(npu=2)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "0,3")
    with pytest.raises(UserError, match=r"2 visible NPU\(s\).*ASCEND_RT_VISIBLE_DEVICES \(now: 0,3\)"):
        plan_processes(3)
    seen(2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with pytest.raises(UserError, match=r"^-ngpus=4 \(NGPUS\).* 2 visible GPU\(s\).*CUDA_VISIBLE_DEVICES \(now: 2,3\)"):
        plan_processes(4)
    assert [plan_processes(asked) for asked in (1, 2)] == [(1, "gpu", False, []), (2, "gpu", False, [])]


def test_without_an_accelerator_too_many_processes_are_noticed(seen):
    seen()
    plan = plan_processes(1000)
    assert plan.processes == 1000 and "share" in plan.notices[0]


def test_processes_exchange_through_the_library_of_their_devices():
    backends = {
        name: device_kinds.get_kind(name).backend for name in ("gpu", "cpu", "xpu", "npu", "mlu", "of_tomorrow")
    }
    xccl = dict.fromkeys(("npu", "mlu", "of_tomorrow"), "xccl")
    assert backends == {"gpu": "nccl", "cpu": "gloo", "xpu": "bkcl", **xccl}


def test_the_cpu_is_taken_on_a_machine_with_gpus_as_if_there_were_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for asked in ("auto", "gpu", "npu"):
        devices.hide_gpus(asked)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    devices.hide_gpus("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_this_process_computes_on_a_cpu_that_counts_no_memory():
    kind = device_kinds.current()
    assert (kind.name, kind.queues, kind.native_batch_norm, kind.replaced) == ("cpu", False, False, "")
    assert not is_on_gpu()
    assert device_kinds.max_allocated_bytes() is None and not device_kinds.computes_in("float16")
    assert paddle.to_tensor(1.0, place=device_kinds.get_place("cpu")).place.is_cpu_place()


def test_doctor_names_accelerators(seen):
    seen(npu=8)
    found = doctor_checks.check_gpus(None)
    assert found.status == "ok" and "8 NPU(s) usable through Paddle's plug-in" in found.text


@pytest.mark.parametrize(
    "words, is_launched", [(b"python\0-m\0paddle.distributed.launch\0train.py", True), (b"sshd\0-D", False)]
)
def test_a_launcher_is_found_among_all_parents(tmp_path, monkeypatch, words, is_launched):
    parents = {30: (20, b"sh\0-c\0x"), 20: (7, b"make\0test"), 7: (1, words), 1: (0, b"init")}
    for pid, (parent, command) in parents.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a name) 99 9) S {parent} 5 6\n")
    monkeypatch.setattr(devices, "Path", lambda top, *names: tmp_path.joinpath(*names))
    monkeypatch.setattr(os, "getppid", lambda: 30)
    assert devices._has_launcher() is is_launched
