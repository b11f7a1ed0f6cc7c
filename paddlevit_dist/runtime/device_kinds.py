"""The table of devices: what each kind that Paddle knows can do, and what takes its place where it cannot.

Everything else asks here: no other file names a GPU to Paddle. A row of CUDA's GPUs and of the CPU is what was
measured; of the others nobody here has a card, so theirs claim least: what Paddle answers for the device itself
(memory, half precision), and else the way that needs nothing of it.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import paddle

from .errors import UserError

GPU, CPU, AUTO = "gpu", "cpu", "auto"


class DeviceKind(NamedTuple):
    """What a kind of device can do.

    Attributes:
        name: as ``paddle.set_device`` takes it, and DEVICE.
        noun: what lines for people call one that is a process's.
        visible: the environment variable of its maker that says which of a machine's are seen.
        backend: of Paddle's process groups.
        queues: the host goes on while it copies (pinned memory) and is told of events, so that a training waits once
            an update.
        native_batch_norm: Paddle's ``SyncBatchNorm``.
        exchanges_float64: its collectives take float64.
    """

    name: str
    noun: str
    visible: str
    backend: str = "xccl"  # what Paddle calls the libraries of all makers that are plug-ins: HCCL, CNCL, ECCL ...
    queues: bool = False
    native_batch_norm: bool = False
    exchanges_float64: bool = False

    @property
    def is_other(self) -> bool:
        """Whether it is an accelerator, and none of CUDA's."""
        return self.name not in (GPU, CPU)

    @property
    def replaced(self) -> str:
        """What it lacks, or is not known to have, and what is done: a line, empty for GPUs and CPUs."""
        if not self.is_other:
            return ""
        lacking = {
            "no SyncBatchNorm (ours, by sums over the devices)": self.native_batch_norm,
            "no float64 in collectives (exchanged by the host)": self.exchanges_float64,
            "no events (the host waits more often)": self.queues,
            "no fused attention or biases": False,  # trials of both need CUDA's events
        }
        found = ", ".join(text for text, has in lacking.items() if not has)
        return f"{self.name}: {found}: the same results, slower; see docs/guides/devices.md"


_KINDS = {
    kind.name: kind
    for kind in (
        DeviceKind(GPU, "GPU", "CUDA_VISIBLE_DEVICES", "nccl", True, True, True),  # NVIDIA, and Hygon by ROCm
        DeviceKind("xpu", "XPU", "XPU_VISIBLE_DEVICES", "bkcl"),  # Kunlun
        DeviceKind("npu", "NPU", "ASCEND_RT_VISIBLE_DEVICES"),  # Ascend
        DeviceKind("mlu", "MLU", "MLU_VISIBLE_DEVICES"),  # Cambricon
        DeviceKind("gcu", "GCU", "TOPS_VISIBLE_DEVICES"),  # Enflame
        DeviceKind("iluvatar_gpu", "Iluvatar GPU", "CUDA_VISIBLE_DEVICES"),
        DeviceKind("metax_gpu", "MetaX GPU", "MACA_VISIBLE_DEVICES"),
        DeviceKind(CPU, "CPU process", "", "gloo", exchanges_float64=True),
    )
}
_OTHER_NAMES = {  # of makers and other frameworks
    **{"cuda": GPU, "nvidia": GPU, "rocm": GPU, "dcu": GPU, "hygon": GPU, "ascend": "npu", "huawei": "npu"},
    **{"kunlun": "xpu", "cambricon": "mlu", "enflame": "gcu", "iluvatar": "iluvatar_gpu", "metax": "metax_gpu"},
}


def get_kind(name: str) -> DeviceKind:
    """The row of a kind; of one that is not in the table, what holds for any plug-in of Paddle."""
    return _KINDS.get(name) or DeviceKind(name, name, f"{name.upper()}_VISIBLE_DEVICES")


def current() -> DeviceKind:
    """The row of the device that this process computes on."""
    return get_kind(paddle.get_device().partition(":")[0])


def is_built_for_cuda() -> bool:
    """Whether this Paddle can use CUDA's GPUs, if there are any."""
    return paddle.is_compiled_with_cuda()


def count_gpus() -> int:
    """Number of GPUs usable by Paddle under CUDA_VISIBLE_DEVICES; 0 on a CPU build.

    Makes no context on any device: CUDA's runtime counts without one, as seen on an H200, and Paddle's places are
    numbers. ``paddle.set_device`` would make one, from CUDA 12 on.
    """
    if not is_built_for_cuda():
        return 0  # cuda_places() raises AssertionError on a CPU build
    return len(paddle.static.cuda_places()) if paddle.device.cuda.device_count() else 0


def count_others() -> dict[str, int]:
    """Number of usable accelerators that are no GPUs of CUDA, by kind."""
    named = [name.partition(":")[0] for name in paddle.device.get_available_custom_device() or ()]
    found = {"xpu": paddle.base.core.get_xpu_device_count() if paddle.is_compiled_with_xpu() else 0}
    found.update({kind: max(1, named.count(kind)) for kind in paddle.device.get_all_custom_device_type() or ()})
    return {kind: number for kind, number in found.items() if number}


def choose(requested: str, seen: Mapping[str, int]) -> tuple[DeviceKind, list[str]]:
    """The kind of device that a run takes, with lines where there was a choice and on what it lacks.

    Args:
        requested: the value of DEVICE, in any case; also a maker's name, "ascend", and "cuda".
        seen: the number of accelerators by kind, those of CUDA first.
    Raises:
        UserError: Paddle sees none of that kind, or it is no kind but one device, such as "gpu:1".
    """
    name, _, which = requested.lower().partition(":")
    name = _OTHER_NAMES.get(name, name)
    if which:
        visible = get_kind(name).visible
        told = f", and {visible} says which of them are seen" if visible else ""
        raise UserError(f"DEVICE {requested} (-device): give the kind alone, {name}: -ngpus is how many{told}")
    named = ", ".join(f"{number} {kind}" for kind, number in seen.items())
    notices = []
    if name == AUTO:
        name = next(iter(seen), CPU)
        if len(seen) > 1:
            notices.append(f"device: {name}, of {named} (DEVICE, or -device=, names another)")
    elif name != CPU and name not in seen:
        known = f"{name} is not among the kinds of devices" if name not in _KINDS else "there is none"
        raise UserError(
            f"DEVICE {requested} (-device): {known} that this Paddle sees: {named + ' and ' if named else ''}the CPU; "
            f"give {', '.join([AUTO, *seen])} or {CPU}, or install Paddle's build or plug-in for it "
            "(docs/guides/devices.md)"
        )
    kind = get_kind(name)
    return kind, [line for line in (*notices, kind.replaced) if line]


def get_place(device: str) -> Any:
    """Paddle's place of a device that is named as ``paddle.get_device`` does, such as "gpu:1"."""
    name, _, number = device.partition(":")
    if name == CPU:
        return paddle.CPUPlace()
    kinds = {GPU: paddle.CUDAPlace, "xpu": paddle.XPUPlace}
    return kinds[name](int(number or 0)) if name in kinds else paddle.CustomPlace(name, int(number or 0))


def most_allocated_bytes() -> int | None:
    """The most that Paddle has had allocated on this process's device at a time; None on a CPU, and where this Paddle
    does not count. Asks the host only."""
    return _memory("max_memory_allocated")


def reserved_bytes() -> int | None:
    """What this process has taken from its device; None as above."""
    return _memory("memory_reserved")


def accelerator_bytes() -> int:
    """Memory of this process's GPU of CUDA in bytes; 0 for any other device."""
    return int(paddle.device.cuda.get_device_properties().total_memory) if current().name == GPU else 0


def _memory(name: str) -> int | None:
    kind = current()
    if kind.name == CPU:
        return None
    counts = getattr(paddle.device.cuda if kind.name == GPU else paddle.device, name, None)  # 2.6 counts CUDA's only
    return None if counts is None else int(counts())


@functools.cache
def computes_in(dtype: str) -> bool:
    """Whether this process's device has kernels of "float16" or "bfloat16", as it tells Paddle itself. A GPU of CUDA
    is asked for more (``engine/precision.py``)."""
    kind = current()
    return bool(getattr(paddle.amp, f"is_{dtype}_supported")()) if kind.is_other else kind.name == GPU
