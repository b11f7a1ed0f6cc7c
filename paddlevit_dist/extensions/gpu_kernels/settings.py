"""Configuration key of fused kernels."""

import importlib.util
from typing import Literal

from ...core.runtime.errors import UserError
from ...core.settings.every_run import RunSettings
from ...core.settings.key import key, rows
from ...core.settings.table import ConfigView, KeyTable


class GpuKernelSettings(RunSettings):
    """Key of fused kernels."""

    GPU_KERNELS: Literal[True, False, "auto"] = key(
        "auto",
        "train by fused Triton kernels (attention, residual + layer norm + cast, bias + GELU, dropout) on a CUDA GPU "
        "that computes with them what Paddle's operations compute; needs the extra triton; auto: if it is installed, "
        "on one GPU, in runs of 300 updates or more, unless the network has both dropout and stochastic depth",
        training_only=True,
        effect="machine",
    )


def _check(config: ConfigView[GpuKernelSettings]) -> list[str]:
    if config.values.GPU_KERNELS is True and importlib.util.find_spec("triton") is None:
        raise UserError(
            f"{config['GPU_KERNELS']} needs the package triton, which is not installed: "
            "pip install '.[triton]' in a clone, or set GPU_KERNELS False"
        )
    return []


TABLE = KeyTable(rows(GpuKernelSettings), check=_check, is_optional=True)
