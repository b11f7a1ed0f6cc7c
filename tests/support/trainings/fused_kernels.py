"""Trains by fused kernels on a CPU that is taken for a GPU; Triton's interpreter computes them."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read where Triton's and our kernels are defined

from paddlevit_dist.extensions.gpu_kernels import device_check, hook, layers  # noqa: E402
from support.trainings import small_runs  # noqa: E402


@contextlib.contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Take this CPU for a GPU that computes fused kernels, and compare few values with Paddle's operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hook, "_start_triton", lambda: "")
        patch.setattr(layers, "_is_on_device", lambda tensor: True)
        patch.setattr(hook, "_may_attend", lambda precision: False)
        patch.setattr(device_check, "_TOKENS", 3)
        yield


def train(output: str, arguments: list[str], train_size: int) -> dict[str, Any]:
    """Train as ``small_runs.train`` does, in a process that ends afterwards."""
    os.environ["PADDLEVIT_DIST_PLAIN_LAYERS"] = "1"  # a GPU has no compiled layers
    with interpreted_kernels():
        return small_runs.train(output, arguments, train_size)
