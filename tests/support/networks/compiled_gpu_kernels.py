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

_TYPES = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16"}
_PTXAS = max(Path(triton.__file__).parent.glob("backends/nvidia/bin/ptxas*"))  # the newest, with a longer name


class Shape:
    """A tensor without memory."""

    def __init__(self, shape: Any, dtype: str) -> None:
        self.shape, self.dtype = list(shape), dtype


class Shapes:
    """Creates them."""

    def empty(self, shape: Any, dtype: str) -> Shape:
        return Shape(shape, dtype)

    def name(self, tensor: Shape) -> str:
        return tensor.dtype


def compile_for(capability: int) -> Any:
    """What compiles a kernel in place of its launch."""

    def launch(kernel, blocks, more_blocks, tensors, names, numbers, constants, warps):
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


if __name__ == "__main__":
    shapes: Any = Shapes()
    for capability in map(int, sys.argv[1:]):
        launches.launch = compile_for(capability)
        for width, dtype in ((192, "bfloat16"), (77, "float32")):
            x, branch, hidden = (
                Shape([2, 197, n], kind) for n, kind in ((width, "float32"), (width, dtype), (width, dtype))
            )
            vector, keep = Shape([width], "float32"), Shape([2, 1, 1], "float32")
            found = launches.add_norm(
                shapes, x, branch, (vector, vector), bias=vector, keep=keep, epsilon=1e-6, dtype=dtype
            )
            options = {"keep": keep, "branch_dtype": dtype, "bias_dtype": "float32"}
            launches.add_norm_backward(shapes, found, branch, x, vector, **options)
            launches.bias_gelu(shapes, hidden, vector)
            launches.bias_gelu_backward(shapes, hidden, hidden, vector)
