"""The CPU, and the instruction set for Paddle's MKL. Needs nothing but Python."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KERNELS = "MKL_DEBUG_CPU_TYPE"


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
