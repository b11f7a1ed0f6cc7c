"""A training on the CPU, beside which those on a device are laid."""

from integration.device.made_up import on_cpu  # noqa: F401
