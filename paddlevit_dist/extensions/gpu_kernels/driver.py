"""Triton's driver for CUDA without torch: another framework answers the four questions that it asks torch."""

from collections.abc import Callable
from typing import NamedTuple

from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils
from triton.runtime import driver


class DeviceAnswers(NamedTuple):
    """What a framework says of its devices.

    Attributes:
        current_device: returns the index of the device in use.
        current_stream: returns the address of the stream that a device's operations are queued in.
        capability: returns a device's compute capability, as (9, 0).
        set_device: changes the device in use.
    """

    current_device: Callable[[], int]
    current_stream: Callable[[int], int]
    capability: Callable[[int], tuple[int, int]]
    set_device: Callable[[int], None]


class FrameworkDriver(CudaDriver):
    """Triton's driver with the answers of a framework other than torch."""

    def __init__(self, answers: DeviceAnswers):
        # Not super().__init__(): it imports torch for these four.
        self.utils = CudaUtils()
        self.launcher_cls = CudaLauncher
        self.get_current_device = answers.current_device
        self.get_current_stream = answers.current_stream
        self.get_device_capability = answers.capability
        self.set_current_device = answers.set_device


def use(answers: DeviceAnswers) -> None:
    """Launch kernels of this process by a framework's streams."""
    driver.set_active(FrameworkDriver(answers))
