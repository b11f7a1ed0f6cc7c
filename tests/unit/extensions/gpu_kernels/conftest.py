"""On CPUs, Triton's interpreter computes the kernels; without Triton, these files have nothing to test."""

import importlib.util

NEEDS_TRITON = [
    "test_attention.py",
    "test_block.py",
    "test_driver.py",
    "test_launches.py",
    "test_functions.py",
    "test_layers.py",
    "test_layers_parts.py",
    "test_device_check.py",
    "test_prepared.py",
]
collect_ignore = [] if importlib.util.find_spec("triton") is not None else NEEDS_TRITON
