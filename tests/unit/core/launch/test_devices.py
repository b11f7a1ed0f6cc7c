"""A user with several kinds of devices, or none, is told which is taken."""

import multiprocessing
import os

import paddle
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import devices
from paddlevit_dist.core.launch.devices import plan_processes
from paddlevit_dist.core.runtime import device_kinds
from paddlevit_dist.core.runtime.transfers import is_on_gpu
from paddlevit_dist.extensions.debug import doctor_checks


@pytest.fixture(autouse=True)
def seen(monkeypatch, other_paddle):
    """Sets what Paddle sees on this machine; each test says."""
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)

    def sees(gpus=0, xpu=0, **others):
        other_paddle({"is_compiled_with_cuda": gpus > 0, "device.cuda.device_count": gpus})
        other_paddle({"static.cuda_places": ["a place"] * gpus, "device.get_all_custom_device_type": list(others)})
        listed = [f"{kind}:{n}" for kind, number in others.items() for n in range(number)]
        other_paddle({"device.get_available_custom_device": listed})
        other_paddle({"is_compiled_with_xpu": xpu > 0, "base.core.get_xpu_device_count": xpu})

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
def test_a_launcher_is_found_among_all_parents(tmp_path, words, is_launched):
    parents = {os.getppid(): (20, b"sh\0-c\0x"), 20: (7, b"make\0test"), 7: (1, words), 1: (0, b"init")}
    for pid, (parent, command) in parents.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a name) 99 9) S {parent} 5 6\n")
    assert devices.has_launcher(tmp_path) is is_launched


@pytest.mark.parametrize("number, is_found", [(16, True), (17, False)])
def test_a_launcher_is_looked_for_among_the_nearest_sixteen_parents(tmp_path, number, is_found):
    pids = [os.getppid(), *range(-2, -number - 1, -1)]
    for pid, parent in zip(pids, [*pids[1:], 0]):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(b"python\0-m\0paddle.distributed.launch" if not parent else b"sh")
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (sh) S {parent} 5 6\n")
    assert devices.has_launcher(tmp_path) is is_found


def test_more_processes_than_cores_share_them(seen, machine):
    seen()
    machine.gpus = 0
    machine.cores = 2
    assert plan_processes(2) == (2, "cpu", False, []) and plan_processes(-1) == (1, "cpu", False, [])
    notices = ["3 processes share 2 core(s): they will slow one another down"]
    assert plan_processes(3) == (3, "cpu", False, notices)
    machine.gpus, machine.is_usable = 1, False
    unusable = "this Paddle cannot use this machine's GPU: training on the CPU (run `doctor` for the reason)"
    assert plan_processes(3).notices == [unusable, *notices]


def test_a_launchers_process_takes_the_number_and_rank_that_it_is_given(seen, monkeypatch, machine):
    seen(4)
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    for name in ("PADDLE_LOCAL_SIZE", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    assert plan_processes(9) == (1, "gpu", True, []) and devices.expected_processes(9) == 1
    assert plan_processes(9).total_processes == 1
    monkeypatch.setenv("PADDLE_LOCAL_SIZE", "3")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "6")
    plan = plan_processes(9)
    assert plan == (3, "gpu", True, []) and devices.expected_processes(9) == 3
    assert (plan.total_processes, plan._replace(by_paddle_launcher=False).total_processes) == (6, 3)
    monkeypatch.delenv("PADDLE_TRAINER_ID")
    machine.gpus = 0
    assert [devices.expected_processes(asked) for asked in (-1, 1, 9)] == [1, 1, 9]
    machine.gpus = 4
    assert devices.expected_processes(-1) == 4


@pytest.mark.parametrize(
    "launched, number, is_main", [(False, None, True), (False, "1", True), (True, "0", True), (True, "1", False)]
)
def test_of_a_launchers_processes_the_first_reports(monkeypatch, launched, number, is_main):
    if number is not None:
        monkeypatch.setenv("PADDLE_TRAINER_ID", number)
    assert devices.ProcessPlan(1, "cpu", launched, []).is_main is is_main


@pytest.mark.parametrize(
    "variables, requested, problem",
    [
        ({}, 4, "PADDLE_TRAINERS_NUM is not"),
        ({"PADDLE_TRAINERS_NUM": "2", "PADDLE_LOCAL_SIZE": "1"}, 4, None),
        ({"PADDLE_TRAINERS_NUM": "1"}, 4, "it is not one of PADDLE_TRAINERS_NUM=1 processes, PADDLE_LOCAL_SIZE=1 of "),
        ({"PADDLE_TRAINERS_NUM": "-2"}, 4, "it is not one of PADDLE_TRAINERS_NUM=-2 processes, PADDLE_LOCAL_SIZE=1 of"),
        ({"PADDLE_TRAINERS_NUM": "x"}, 4, "it is not one of PADDLE_TRAINERS_NUM=x processes, PADDLE_LOCAL_SIZE=1 of "),
        (
            {"PADDLE_TRAINERS_NUM": "2", "PADDLE_LOCAL_SIZE": "x"},
            4,
            "it is not one of PADDLE_TRAINERS_NUM=2 processes, PADDLE_LOCAL_SIZE=x of them here",
        ),
        ({"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "1"}, 1, None),
        (
            {"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "1"},
            2,
            "-ngpus=2 requests more processes than PADDLE_TRAINERS_NUM=1",
        ),
        ({"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "2"}, 2, None),
        (
            {"PADDLE_TRAINER_ID": "x", "PADDLE_TRAINERS_NUM": "2"},
            1,
            "it is not one of PADDLE_TRAINERS_NUM=2 processes, PADDLE_LOCAL_SIZE=1 of them here",
        ),
    ],
)
def test_variables_of_a_launcher_have_to_fit(monkeypatch, variables, requested, problem):
    for name in devices.LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    variables = {"PADDLE_TRAINER_ID": "1", **variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if problem is None:
        return devices.check_launcher_variables(requested)
    message = refusal_of(devices.check_launcher_variables, requested)
    names = " ".join(name for name in ("PADDLE_TRAINER_ID", *devices.LAUNCHER_VARIABLES) if name in variables)
    start = f"PADDLE_TRAINER_ID={variables['PADDLE_TRAINER_ID']} is set in this shell, but {problem}"
    assert message.startswith(start)
    assert message.endswith(
        f"; `unset {names}` to start the processes here, or use python -m paddle.distributed.launch"
    )


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SRUN = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    "variables, named",
    [
        (TORCHRUN, "RANK"),
        ({**TORCHRUN, "RANK": "1"}, "RANK"),
        (SRUN, "SLURM_PROCID"),
        ({**SRUN, "SLURM_PROCID": "0"}, "SLURM_PROCID"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "SLURM_PROCID"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_RANK"),
        ({**TORCHRUN, "WORLD_SIZE": "1"}, None),
        ({"WORLD_SIZE": "8"}, None),  # left in a shell
        ({"RANK": "", "WORLD_SIZE": "x"}, None),
        ({**SRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, None),  # one task a step
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # the script of sbatch
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, None),  # the shell of salloc
        ({"SLURM_NTASKS": "4"}, None),
        ({**SRUN, "PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "2"}, None),  # Paddle's launcher in each task
    ],
)
def test_several_processes_of_another_launcher_are_refused_with_the_command_to_use(monkeypatch, variables, named):
    for name in {*" ".join(devices.OTHER_LAUNCHERS).split(), *devices.LAUNCHER_VARIABLES, "PADDLE_TRAINER_ID"}:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if named is None:
        return devices.check_launcher_variables(1)
    message = refusal_of(devices.check_launcher_variables, 1)
    assert message.startswith(f"{named}={variables[named]} and ")
    assert "python -m paddle.distributed.launch --nnodes N" in message
    monkeypatch.delenv(message.rpartition("`unset ")[2].partition("`")[0])
    devices.check_launcher_variables(1)


def test_a_launchers_single_process_may_be_asked_for_several(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    monkeypatch.delenv("PADDLE_LOCAL_SIZE", raising=False)
    monkeypatch.setattr(devices, "has_launcher", lambda: True)
    devices.check_launcher_variables(2)


@pytest.mark.parametrize("gpus, cores, most, advised", [(0, 2, 32, 2), (40, 2, 40, 40), (3, 2, 32, 3)])
def test_more_processes_than_any_machine_runs_are_refused(machine, gpus, cores, most, advised):
    machine.gpus = gpus
    machine.cores = cores
    devices.check_launcher_variables(most)
    assert refusal_of(devices.check_launcher_variables, most + 1) == (
        f"-ngpus={most + 1} (NGPUS): this machine has {gpus} visible GPU(s) and {cores} core(s): use at most "
        f"{advised}, or omit the flag"
    )


def test_what_an_earlier_launch_has_left_is_dropped_and_told_unless_launched(monkeypatch):
    for name in devices.LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert devices.drop_stale_variables() == []
    monkeypatch.setenv("PADDLE_NNODES", "2")
    monkeypatch.setenv("PADDLE_MASTER", "a:1")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    assert devices.drop_stale_variables() == [] and os.environ["PADDLE_MASTER"] == "a:1"
    monkeypatch.delenv("PADDLE_TRAINER_ID")
    assert devices.drop_stale_variables() == [
        "ignored, as no launcher started this run: PADDLE_MASTER=a:1, PADDLE_NNODES=2 (left in this shell; unset them)"
    ]
    assert not {"PADDLE_MASTER", "PADDLE_NNODES"} & set(os.environ)


def test_a_program_that_workers_import_may_not_start_a_run(monkeypatch, command_line):
    devices.refuse_to_start_in_a_worker()
    command_line("/x/train.py", "-a")
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(SystemExit, match=r"^error: train.py starts a run outside `if __name__ == \"__main__\"`, so"):
        devices.refuse_to_start_in_a_worker()
