"""Memory that runs out on a GPU is one line with the figures of the run, whatever raises it, in any process."""

import sys
from types import SimpleNamespace

import pytest
from support import small_runs
from support.processes import run_command, run_workers
from support.runs import refusal
from support.trained import write_weights

from paddlevit_dist import rank, world_size
from paddlevit_dist.commands import train
from paddlevit_dist.engine import gpu_memory, run
from paddlevit_dist.runtime.errors import UserError

# As Paddle 2.6 and 3.x raise them.
ALLOCATION = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::experimental::matmul(paddle::Tensor const&, paddle::Tensor const&, bool, bool)

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError: 

Out of memory error on GPU 0. Cannot allocate 15.503906GB memory on GPU 0, 28.770508GB memory has been allocated and available memory is only 716.750000MB.

Please check whether there is any other process using GPU 0.
1. If yes, please stop them, or start PaddlePaddle on another GPU.
2. If no, please decrease the batch size of your model. 
 (at ../paddle/fluid/memory/allocation/cuda_allocator.cc:86)
"""  # noqa: E501, W291
VIRTUAL = (
    "(ResourceExhausted) \n\nOut of memory error on GPU Virtual Memory 1. Cannot allocate 98.000244MB memory on GPU "
    "Virtual Memory 1, 6.000000GB memory has been allocated and available memory is only 0.000000B.\n\nPlease decrease "
    "the batch size of your model.\n"
)
CUBLAS = (
    "(External) CUBLAS error(3). \n  [Hint: 'CUBLAS_STATUS_ALLOC_FAILED'.  Resource allocation failed inside the "
    "cuBLAS library.] (at ../paddle/phi/backends/gpu/gpu_resources.cc:201)"
)
CUDNN = "(External) CUDNN error(2), CUDNN_STATUS_ALLOC_FAILED. \n  [Hint: Please search for the error code(2)]"
CUDA = "(External) CUDA error(2), out of memory. \n  [Hint: 'cudaErrorMemoryAllocation'. The API call failed]"
NCCL = (
    "(External) NCCL error(1), unhandled cuda error. \n  Detail: Cuda failure 2 'out of memory' Resolve: ... "
    "(at ../paddle/phi/core/distributed/comm_context_manager.cc:83)"
)
SAID = "15.50 GiB were asked for, 28.77 GiB are in use and 0.70 GiB free"


def test_what_was_asked_for_and_what_is_left_is_told():
    assert gpu_memory.out_of_memory(ALLOCATION) == f"out of memory on GPU 0 (rank 0): {SAID}"
    said = gpu_memory.out_of_memory(VIRTUAL)
    assert said == "out of memory on GPU 1 (rank 0): 98.0 MiB were asked for, 6.00 GiB are in use and 0.0 MiB free"


@pytest.mark.parametrize(
    "text, name",
    [
        (CUBLAS, "CUBLAS_STATUS_ALLOC_FAILED"),
        (CUDNN, "CUDNN_STATUS_ALLOC_FAILED"),
        (CUDA, "CUDA error(2)"),
        (NCCL, "Cuda failure 2 'out of memory'"),
    ],
)
def test_libraries_that_get_no_memory_are_named(text, name):
    assert f"a library of CUDA got none ({name})" in gpu_memory.out_of_memory(text)


@pytest.mark.parametrize(
    "text",
    [
        "(ResourceExhausted) Fail to alloc memory of 140737488355328 size, error code is 12.",
        "CUDA error(700), an illegal memory access was encountered.",
        "cannot allocate: the tensor has no elements",
    ],
)
def test_other_errors_are_left_as_they_are(text):
    assert gpu_memory.out_of_memory(text) is None
    with pytest.raises(MemoryError, match="."), gpu_memory.explain_memory("advice"):
        raise MemoryError(text)


def test_memory_that_others_hold_is_told_apart(monkeypatch):
    device = SimpleNamespace(memory_reserved=lambda: 4 << 30)
    monkeypatch.setattr(gpu_memory.paddle.device, "cuda", device)
    monkeypatch.setattr(gpu_memory.device_kinds, "current", lambda: gpu_memory.device_kinds.kind_of("gpu"))
    said = gpu_memory.out_of_memory(ALLOCATION)
    assert "28.77 GiB are in use, 24.77 GiB of them not by this process (see nvidia-smi)" in said
    device.memory_reserved = lambda: 28 << 30
    assert "nvidia-smi" not in gpu_memory.out_of_memory(ALLOCATION)


@pytest.mark.parametrize(
    "changes, helps, not_yet",
    [
        ({}, ["DATA.BATCH_SIZE (32)", "TRAIN.ACCUM_ITER (2)", "TRAIN.RECOMPUTE", "-amp"], []),
        ({"AMP": True}, ["DATA.BATCH_SIZE (32)", "TRAIN.RECOMPUTE"], ["-amp"]),
        ({"RECOMPUTE": True, "BATCH_SIZE": 1}, ["-amp"], ["BATCH_SIZE", "RECOMPUTE"]),
        ({"RECOMPUTE": True, "BATCH_SIZE": 1, "AMP": True}, ["larger GPU"], ["BATCH_SIZE", "RECOMPUTE", "-amp"]),
    ],
)
def test_what_helps_is_what_the_run_does_not_use_yet(changes, helps, not_yet):
    values = {"AMP": False, "RECOMPUTE": False, "BATCH_SIZE": 32, **changes}
    config = SimpleNamespace(
        AMP=values["AMP"],
        TO_STATIC=False,
        DATA=SimpleNamespace(BATCH_SIZE=values["BATCH_SIZE"]),
        TRAIN=SimpleNamespace(ACCUM_ITER=2, RECOMPUTE=values["RECOMPUTE"]),
    )
    advice = gpu_memory.of_training(config)
    assert all(word in advice for word in helps) and not any(word in advice for word in not_yet)


def no_memory(*_):
    raise MemoryError(ALLOCATION)


def run_out_on_the_last_rank(output: str, when_built: bool) -> None:
    made = small_runs.build(output, "-batch_size=16")
    if rank() == world_size() - 1:
        made.model.forward = no_memory
    run.Run = no_memory if when_built else lambda *_: made
    train.worker(made.config, made.task, made.datasets, [])


@pytest.mark.parametrize("processes, when_built", [(1, True), (2, False)])
def test_a_training_ends_with_one_line_that_names_the_rank(tmp_path, processes, when_built):
    target = "engine.test_gpu_memory:run_out_on_the_last_rank"
    said = refusal(run_workers(target, str(tmp_path / "run"), when_built, processes=processes))
    assert said.startswith(f"out of memory on GPU 0 (rank {processes - 1}): {SAID}; lower DATA.BATCH_SIZE (16)")


def test_an_evaluation_is_told_of_its_own_batch(tmp_path):
    made = small_runs.build(str(tmp_path), "-batch_size=16", "-batch_size_eval=24")
    made.model.forward = no_memory
    with pytest.raises(UserError, match=r"rank 0.*; lower DATA.BATCH_SIZE_EVAL \(24\)$"):
        made.evaluation("evaluation")


PREDICT = """
import sys
from engine.test_gpu_memory import no_memory
from paddlevit_dist.commands.predict import run
from paddlevit_dist.inference import predictor
from paddlevit_dist.runtime.errors import run_and_report

predictor.predict_batch = no_memory
sys.exit(run_and_report(lambda: run(sys.argv[1:])))
"""


def test_predict_is_told_of_its_batch(tmp_path):
    from PIL import Image

    weights = write_weights(tmp_path / "weights", ["a", "b"])
    Image.new("RGB", (16, 16)).save(tmp_path / "one.png")
    command = [sys.executable, "-c", PREDICT, str(weights), str(tmp_path / "one.png"), "-batch_size=3"]
    said = refusal(run_command(command, timeout=60, folder=tmp_path))
    assert said == f"out of memory on GPU 0 (rank 0): {SAID}; lower -batch_size (3)"
