"""Memory that runs out on a GPU is one line with the figures of the run, whatever raises it, in any process."""

from types import SimpleNamespace

import pytest
from support.forced_device import forced_device
from support.trainings import small_runs
from support.trainings.full_gpus import ALLOCATION, SAID, no_memory

from paddlevit_dist import UserError
from paddlevit_dist.core.engine import gpu_memory

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


def test_what_was_asked_for_and_what_is_left_is_told():
    assert gpu_memory.out_of_memory(ALLOCATION) == f"out of memory on GPU 0 (rank 0): {SAID}"
    said = gpu_memory.out_of_memory(VIRTUAL)
    assert said == "out of memory on GPU 1 (rank 0): 98.0 MiB requested, 6.00 GiB in use, 0.0 MiB free"


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
    assert f"a CUDA library got none ({name})" in gpu_memory.out_of_memory(text)


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


def explain(text: str, reserved: int) -> str:
    """What is said of an error on a GPU of whose memory this process has reserved so many bytes."""
    with forced_device(used=reserved):
        return gpu_memory.out_of_memory(text)


def test_memory_that_others_hold_is_told_apart():
    said = explain(ALLOCATION, 4 << 30)
    assert "28.77 GiB in use, 24.77 GiB of them not by this process (see nvidia-smi)" in said
    assert "nvidia-smi" not in explain(ALLOCATION, 28 << 30)
    text = ALLOCATION.replace("28.770508GB", "3.0GB")
    for more, is_told in ((0, False), (1, True)):  # of 2 GiB
        assert (", 2.00 GiB of them not by this process" in explain(text, (1 << 30) - more)) == is_told
    for reserved, shown in ((107_374_182, "102.4 MiB"), (107_374_183, "0.10 GiB"), (1 << 20, "1.0 MiB")):
        held = f"out of memory on GPU 0 (rank 0): a CUDA library got none (CUDA error(2)); this process holds {shown}"
        assert explain(CUDA, reserved) == held
    assert explain("CustomDevice error, the error code is : 2", 1 << 20).endswith(
        "(rank 0), as its plug-in reports; this process holds 1.0 MiB"
    )


@pytest.mark.parametrize(
    "size, shown",
    [
        ("512.0B", "0.0 MiB"),
        ("524288.0B", "0.5 MiB"),
        ("64.0kB", "0.1 MiB"),
        ("2.0MB", "2.0 MiB"),
        ("1.0TB", "1024.00 GiB"),
    ],
)
def test_sizes_of_paddle_are_powers_of_1024(size, shown):
    told = gpu_memory.out_of_memory(ALLOCATION.replace("15.503906GB", size))
    assert told.startswith(f"out of memory on GPU 0 (rank 0): {shown} requested, ")


@pytest.mark.parametrize(
    "changes, helps, not_yet",
    [
        ({}, ["DATA.BATCH_SIZE (32)", "TRAIN.ACCUM_ITER (2)", "TRAIN.RECOMPUTE", "-amp"], []),
        ({"AMP": True}, ["DATA.BATCH_SIZE (32)", "TRAIN.RECOMPUTE"], ["-amp"]),
        ({"BATCH_SIZE": 2, "TO_STATIC": True}, ["DATA.BATCH_SIZE (2)", "-amp"], ["RECOMPUTE"]),
        ({"RECOMPUTE": True, "BATCH_SIZE": 1}, ["-amp"], ["BATCH_SIZE", "RECOMPUTE"]),
        ({"RECOMPUTE": True, "BATCH_SIZE": 1, "AMP": True}, ["larger GPU"], ["BATCH_SIZE", "RECOMPUTE", "-amp"]),
    ],
)
def test_what_helps_is_what_the_run_does_not_use_yet(changes, helps, not_yet):
    values = {"AMP": False, "RECOMPUTE": False, "BATCH_SIZE": 32, "TO_STATIC": False, **changes}
    config = SimpleNamespace(
        AMP=values["AMP"],
        TO_STATIC=values["TO_STATIC"],
        DATA=SimpleNamespace(BATCH_SIZE=values["BATCH_SIZE"]),
        TRAIN=SimpleNamespace(ACCUM_ITER=2, RECOMPUTE=values["RECOMPUTE"]),
    )
    advice = gpu_memory.advise_training(config)
    assert all(word in advice for word in helps) and not any(word in advice for word in not_yet)


def test_an_evaluation_is_told_of_its_own_batch(tmp_path):
    made = small_runs.build(str(tmp_path), "-batch_size=16", "-batch_size_eval=24")
    made.model.forward = no_memory
    with pytest.raises(UserError, match=r"rank 0.*; lower DATA.BATCH_SIZE_EVAL \(24\)$"):
        made.evaluator("evaluation")
