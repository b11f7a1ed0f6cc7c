"""The branches of another kind of device, on a CPU."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import paddle
import pytest

from paddlevit_dist.core.runtime import device_kinds, transfers


@contextlib.contextmanager
def forced_device(
    kind: str = "gpu", *, capability: tuple[int, int] = (8, 0), used: int = 0, memory: int = 80 << 30
) -> Iterator[None]:
    """Let the package take the device of this process for another kind; Paddle computes on the CPU as ever.

    Transfers copy at once, on the CPU. The others are what a GPU says of itself: its compute capability, bytes that
    this process has reserved or had allocated, and bytes of its memory.
    """
    answers = {
        "get_device_capability": capability,
        "get_device_properties": SimpleNamespace(name="a GPU", total_memory=memory),
        "max_memory_allocated": used,
        "memory_reserved": used,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_kinds, "current", lambda: device_kinds.get_kind(kind))
        for name, answer in answers.items():
            patch.setattr(paddle.device.cuda, name, lambda *_, answer=answer: answer)
        patch.setattr(transfers, "_pinned_place", paddle.CPUPlace)
        patch.setattr(transfers, "_pin", paddle.to_tensor)
        patch.setattr(transfers, "_begin_copy", lambda tensor, place: tensor.detach().clone())
        patch.setattr(transfers, "_after_this", lambda: lambda: None)
        device_kinds.computes_in.cache_clear()
        yield
    device_kinds.computes_in.cache_clear()
