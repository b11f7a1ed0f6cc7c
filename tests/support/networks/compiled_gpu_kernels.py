"""Compiles the fused kernels for a GPU that is not there, and prints each with its registers and spilled bytes.

The interpreter takes programs that the compiler refuses. Arguments: compute capabilities, as 80.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from paddlevit_dist.extensions.gpu_kernels import launches

_TYPES = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int32": "*i32"}
_PTXAS = max(Path(triton.__file__).parent.glob("backends/nvidia/bin/ptxas*"))  # the newest, with a longer name


class Shapes:
    """Creates nothing: nothing is launched."""

    def prepare(self, shape: Any, dtype: str) -> Any:
        return lambda: None


def compile_for(capability: int) -> Any:
    """What compiles a kernel in place of its launch."""

    def launch(kernel, blocks, names, numbers, constants, warps):
        types = [_TYPES[name] for name in names] + ["fp32" if isinstance(one, float) else "i32" for one in numbers]
        signature = dict(zip(kernel.arg_names, types + ["constexpr"] * len(constants), strict=True))
        values = {(len(types) + place,): value for place, value in enumerate(constants)}
        aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(names))}
        source, target = ASTSource(kernel, signature, values, aligned), GPUTarget("cuda", capability, 32)
        text = triton.compile(source, target=target, options={"num_warps": warps, "enable_fp_fusion": True}).asm["ptx"]
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            architecture = re.search(r"\.target (\w+)", text)[1]
            command = [_PTXAS, "-v", f"-arch={architecture}", file.name, "-o", "/dev/null"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        registers, spilled = (
            re.search(r"Used (\d+) registers", said)[1],
            re.search(r"(\d+) bytes spill stores", said)[1],
        )
        print(f"{kernel.__name__} {capability} {constants[0]} {names[0]} {registers} {spilled}", flush=True)

    return launch


def prepare_all(width: int, dtype: str) -> None:
    """Prepare each launch once, with all that a kernel can do."""
    shapes: Any = Shapes()
    drops, sizes = launches.DropRates(1, 0.1, 0.1), [2, 197, width]
    types = launches.SumTypes("float32", dtype, "float32", "float32", "float32", dtype)
    launches.AddNorm(shapes, sizes, types, 1e-6, drops)
    first = launches.AddNormBackward(shapes, sizes, types, drops)
    launches.BiasGelu(shapes, sizes, dtype, "float32", drops)
    gelu = launches.BiasGeluBackward(shapes, sizes, dtype, dtype, "float32", drops)
    launches.AddUpBlock(first, gelu, first, "float32")
    launches.CastFive([width * width, width], ["float32", "float32"], "bfloat16")


if __name__ == "__main__":
    for capability in map(int, sys.argv[1:]):
        launches.PreparedLaunch = compile_for(capability)  # type: ignore[misc]
        for width, dtype in ((192, "bfloat16"), (77, "float32")):
            prepare_all(width, dtype)
