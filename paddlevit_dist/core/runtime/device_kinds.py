"""The table of devices: the features of each kind that Paddle supports, and the replacement of missing ones.

All other files ask this one: none of them names a GPU to Paddle. The rows of CUDA's GPUs and of the CPU were measured.
The other kinds were not available, so their rows claim least: they use what Paddle reports about the device (memory,
half precision), and otherwise methods without requirements.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import paddle

from .errors import UserError

GPU, CPU, AUTO = "gpu", "cpu", "auto"


class DeviceKind(NamedTuple):
    """A kind of device and its features."""

    name: str  # as in ``paddle.set_device`` and DEVICE
    noun: str  # name of one such device in messages
    visible: str  # the vendor's environment variable that lists the visible devices
    backend: str = "xccl"  # of process groups: Paddle's name for the libraries of all plug-ins: HCCL, CNCL, ECCL ...
    #: whether the host continues during copies (pinned memory) and gets events, so that training waits once per update
    queues: bool = False
    native_batch_norm: bool = False  # whether Paddle's ``SyncBatchNorm`` works
    exchanges_float64: bool = False  # whether its collectives support float64

    @property
    def is_other(self) -> bool:
        """Whether it is an accelerator without CUDA."""
        return self.name not in (GPU, CPU)

    @property
    def replaced(self) -> str:
        """A line about missing or unconfirmed features and their replacement; empty for GPUs and CPUs."""
        if not self.is_other:
            return ""
        features = {
            "no SyncBatchNorm (ours, by sums over the devices)": self.native_batch_norm,
            "no float64 in collectives (exchanged by the host)": self.exchanges_float64,
            "no events (the host waits more often)": self.queues,
            "no fused attention or biases": False,  # trials of both need CUDA's events
        }
        missing = ", ".join(text for text, is_there in features.items() if not is_there)
        return f"{self.name}: {missing}: the same results, slower; see docs/guides/devices.md"


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
_OTHER_NAMES = {  # used by vendors and other frameworks
    **{"cuda": GPU, "nvidia": GPU, "rocm": GPU, "dcu": GPU, "hygon": GPU, "ascend": "npu", "huawei": "npu"},
    **{"kunlun": "xpu", "cambricon": "mlu", "enflame": "gcu", "iluvatar": "iluvatar_gpu", "metax": "metax_gpu"},
}


def get_kind(name: str) -> DeviceKind:
    """Return the row of a kind; for an unknown kind, a row that holds for any plug-in of Paddle."""
    return _KINDS.get(name) or DeviceKind(name, name, f"{name.upper()}_VISIBLE_DEVICES")


def current() -> DeviceKind:
    """Return the row of the device that this process computes on."""
    return get_kind(paddle.get_device().partition(":")[0])


def is_built_for_cuda() -> bool:
    """Return whether this Paddle can use CUDA GPUs, if there are any."""
    return paddle.is_compiled_with_cuda()


def count_gpus() -> int:
    """Return the number of GPUs usable by Paddle under CUDA_VISIBLE_DEVICES; 0 on a CPU build.

    This creates no context on any device: CUDA's runtime counts without one, as measured on an H200, and Paddle's
    places are numbers. ``paddle.set_device`` would create one from CUDA 12 on.
    """
    if not is_built_for_cuda():
        return 0  # cuda_places() raises AssertionError on a CPU build
    return len(paddle.static.cuda_places()) if paddle.device.cuda.device_count() else 0


def count_others() -> dict[str, int]:
    """Return the number of usable accelerators without CUDA, by kind."""
    named = [name.partition(":")[0] for name in paddle.device.get_available_custom_device() or ()]
    counts = {"xpu": paddle.base.core.get_xpu_device_count() if paddle.is_compiled_with_xpu() else 0}
    counts.update({kind: max(1, named.count(kind)) for kind in paddle.device.get_all_custom_device_type() or ()})
    return {kind: number for kind, number in counts.items() if number}


def choose(requested: str, visible: Mapping[str, int]) -> tuple[DeviceKind, list[str]]:
    """Return the kind of device of a run, and lines about a choice among several and about missing features.

    Args:
        requested: the value of DEVICE, in any case; also a vendor's name, "ascend", and "cuda".
        visible: the number of accelerators by kind, CUDA first.

    Raises:
        UserError: Paddle sees none of that kind, or it is a single device, such as "gpu:1".
    """
    name, _, which = requested.lower().partition(":")
    name = _OTHER_NAMES.get(name, name)
    if which:
        variable = get_kind(name).visible
        hint = f", and {variable} chooses the visible ones" if variable else ""
        raise UserError(f"DEVICE {requested} (-device): name only the kind, {name}: -ngpus sets the number{hint}")
    named = ", ".join(f"{number} {device_kind}" for device_kind, number in visible.items())
    notices = []
    if name == AUTO:
        name = next(iter(visible), CPU)
        if len(visible) > 1:
            notices.append(f"device: {name}, of {named} (DEVICE, or -device=, chooses another)")
    elif name != CPU and name not in visible:
        problem = f"{name} is not among the kinds of devices" if name not in _KINDS else "there is none"
        others = f"{named} and " if named else ""
        raise UserError(
            f"DEVICE {requested} (-device): {problem} that this Paddle sees: {others}the CPU; "
            f"use {', '.join([AUTO, *visible])} or {CPU}, or install Paddle's build or plug-in for it "
            "(docs/guides/devices.md)"
        )
    kind = get_kind(name)
    return kind, [line for line in (*notices, kind.replaced) if line]


def get_place(device: str) -> Any:
    """Return Paddle's place of a device named as in ``paddle.get_device``, such as "gpu:1"."""
    name, _, number = device.partition(":")
    if name == CPU:
        return paddle.CPUPlace()
    kinds = {GPU: paddle.CUDAPlace, "xpu": paddle.XPUPlace}
    return kinds[name](int(number or 0)) if name in kinds else paddle.CustomPlace(name, int(number or 0))


def max_allocated_bytes() -> int | None:
    """Return the most bytes that Paddle has allocated on this process's device at a time, without waiting for it.

    None on a CPU, and if this Paddle does not count.
    """
    return _memory("max_memory_allocated")


def reserved_bytes() -> int | None:
    """Return the bytes that this process has reserved on its device; None on a CPU, and if Paddle does not count."""
    return _memory("memory_reserved")


def accelerator_bytes() -> int:
    """Return the memory of this process's CUDA GPU in bytes; 0 for any other device."""
    return int(paddle.device.cuda.get_device_properties().total_memory) if current().name == GPU else 0


def _memory(name: str) -> int | None:
    kind = current()
    if kind.name == CPU:
        return None
    counts = getattr(paddle.device.cuda if kind.name == GPU else paddle.device, name, None)  # 2.6 counts CUDA's only
    return None if counts is None else int(counts())


@functools.cache
def computes_in(dtype: str) -> bool:
    """Return whether this process's device has kernels for "float16" or "bfloat16", according to Paddle.

    For a CUDA GPU, ``core/engine/precision.py`` checks more.
    """
    kind = current()
    return bool(getattr(paddle.amp, f"is_{dtype}_supported")()) if kind.is_other else kind.name == GPU
