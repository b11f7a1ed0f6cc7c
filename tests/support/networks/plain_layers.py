"""Paddle's own layers in place of the fast ones, in this process."""

from contextlib import AbstractContextManager
from unittest import mock

from paddlevit_dist.extensions.cpu_kernels import accelerate


def plain_layers() -> AbstractContextManager:
    """Inside the block every layer computes as on a device without fast layers."""
    return mock.patch.object(accelerate, "is_available", return_value=False)
