"""How many processes a run gets and what each of them drives."""

from __future__ import annotations

import glob
import os
from typing import List, NamedTuple, Optional

from ..errors import UserError


class ProcessPlan(NamedTuple):
    """What gets started on this machine."""

    processes: int  # started by this machine's parent; 1 means the worker runs in the entry point's own process
    uses_gpu: bool
    launched: bool  # paddle.distributed.launch has already started us: run the worker in place
    notices: List[str]

    @property
    def total_processes(self) -> int:
        """Number of processes in the whole run, over all machines."""
        return int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) if self.launched else self.processes

    @property
    def is_main(self) -> bool:
        """Whether this process reports for the run: only one of those started by Paddle's launcher does."""
        return not self.launched or os.environ.get("PADDLE_TRAINER_ID") == "0"


def cpu_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_launched() -> bool:
    """True under ``python -m paddle.distributed.launch``, which has set this process's rank."""
    return "PADDLE_TRAINER_ID" in os.environ


def count_gpus() -> int:
    """Number of GPUs usable by Paddle under CUDA_VISIBLE_DEVICES; 0 on a CPU build. Does not touch any device."""
    import paddle

    if not paddle.is_compiled_with_cuda():
        return 0  # cuda_places() raises AssertionError on a CPU build
    return len(paddle.static.cuda_places()) if paddle.device.cuda.device_count() else 0


def expected_gpus() -> int:
    """The likely number of GPUs, judging only by the environment and the driver's device files, without Paddle.

    Only the thread count, which must be known before Paddle is imported, relies on it.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    present = len(glob.glob("/dev/nvidia[0-9]*"))
    if visible is None or not present:
        return present
    return min(present, len([device for device in visible.split(",") if device.strip() not in ("", "-1")]))


def plan_processes(requested: int, gpus: Optional[int] = None) -> ProcessPlan:
    """Plan this machine's processes from ``NGPUS``: -1 means every visible GPU, or one process on a CPU.

    Args:
        requested: the value of NGPUS, -1 or at least 1.
        gpus: number of usable GPUs; None counts them.
    Raises:
        UserError: more GPUs are requested than are visible.
    """
    gpus = count_gpus() if gpus is None else gpus
    if is_launched():
        count = int(os.environ.get("PADDLE_LOCAL_SIZE", "1"))
        return ProcessPlan(count, gpus > 0, True, [])
    if gpus:
        if requested > gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
            raise UserError(
                f"-ngpus={requested} (NGPUS) is more than the {gpus} visible GPU(s); "
                f"lower it or let CUDA_VISIBLE_DEVICES (now: {visible}) show more"
            )
        return ProcessPlan(gpus if requested == -1 else requested, True, False, [])
    notices = []
    if expected_gpus():
        notices.append("this Paddle cannot use the GPU of this machine: training on the CPU (see `doctor`)")
    processes = 1 if requested == -1 else requested
    cores = cpu_cores()
    if processes > cores:
        notices.append(f"{processes} processes share {cores} core(s): expect them to slow one another down")
    return ProcessPlan(processes, False, False, notices)
