"""The CPU, and the instruction set for Paddle's MKL. Needs nothing but Python."""

import os
import platform
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KERNELS = "MKL_DEBUG_CPU_TYPE"
CHOSEN = "PADDLEVIT_DIST_KERNELS"  # value that the package's import has set KERNELS to
_was_in_time = False


def processor(file: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Return vendor, model name and instruction-set flags of the CPU, empty if the system does not report them."""
    try:
        first_core = file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        first_core = ""
    lines = (line.partition(":") for line in first_core.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    model = fields.get("model name", platform.processor())
    return {"vendor": fields.get("vendor_id", ""), "model": model, "flags": fields.get("flags", "").split()}


def math_kernels(cpu: Mapping[str, Any]) -> str | None:
    """Return the MKL_DEBUG_CPU_TYPE for this processor's instruction set; None to leave MKL unchanged."""
    if cpu["vendor"] != "AuthenticAMD":
        return None
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(cpu["flags"]):
        return "7"
    return "5" if "avx2" in cpu["flags"] else None


def choose_kernels() -> None:
    """Set MKL_DEBUG_CPU_TYPE for a program that imports this package, unless it is set; warn if Paddle came first.

    MKL reads the variable in its first product. A command's own environment replaces it (``forget_kernels``).
    """
    global _was_in_time
    kernels = None if KERNELS in os.environ else math_kernels(processor())
    if kernels is None:
        return
    _was_in_time = "paddle" not in sys.modules
    os.environ.update({KERNELS: kernels, CHOSEN: kernels})
    if not _was_in_time:
        warnings.warn(
            "paddlevit_dist was imported after Paddle: if Paddle has computed by now, its matrix products stay slow on "
            f"this AMD processor; import paddlevit_dist first, or set {KERNELS}={kernels} in the environment",
            stacklevel=3,
        )


def forget_kernels() -> None:
    """Remove the variable that ``choose_kernels`` has set here or in the parent process."""
    kernels = os.environ.pop(CHOSEN, None)
    if kernels is not None and os.environ.get(KERNELS) == kernels:
        del os.environ[KERNELS]


def chose_in_time() -> bool:
    """Return whether ``choose_kernels`` has set MKL's variable here before Paddle was imported."""
    return _was_in_time
