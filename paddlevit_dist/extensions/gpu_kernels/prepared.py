"""Launches of Triton functions on tensors of any framework, prepared once for tensors of the same shapes and dtypes.

Triton looks at all arguments of each call, to find what it has compiled; this takes the host several times as long as
the launch itself. Shapes and dtypes already say it, since the addresses of whole tensors are multiples of 16.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import triton
from triton.runtime import driver


class TypedAddress:
    """What Triton reads of a tensor: its address and the name of its dtype, such as "float32".

    The other methods are what Triton's interpreter calls to copy a tensor to the host and back. It computes on the
    memory itself, which is the host's wherever the interpreter is used.
    """

    __slots__ = ("address", "dtype")
    device = "cpu"

    def __init__(self, address: int, dtype: str):
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        """Return the address of the first value."""
        return self.address

    def untyped_storage(self) -> "TypedAddress":
        """Return the memory that the tensor is in."""
        return self

    def cpu(self) -> "TypedAddress":
        """Return the memory on the host."""
        return self

    def new_empty(self, size: int, device: str) -> "TypedAddress":
        """Return a tensor that ``set_`` places."""
        return TypedAddress(0, self.dtype)

    def set_(self, storage: "TypedAddress", offset: int, size: Any, stride: Any) -> None:
        """Place the tensor in memory."""
        self.address = storage.address

    def copy_(self, storage: "TypedAddress") -> None:
        """Copy nothing: both are one memory."""

    def storage_offset(self) -> int:
        """Return 0: an address is that of the tensor itself."""
        return 0

    def size(self) -> tuple[int, ...]:
        """Return no size: kernels know it by their arguments."""
        return ()

    def stride(self) -> tuple[int, ...]:
        """Return no strides: rows are adjacent."""
        return ()


class PreparedLaunch:
    """A launch that lacks only its tensors: called with these, it starts the kernel.

    Args:
        kernel: a function of ``kernels``, whose arguments are tensors, numbers and constants in this order.
        blocks: programs along its first and second axis.
        names: dtypes of the tensors, as "float32".
        numbers: arguments that Triton does not compile for.
        constants: arguments that it does.
        warps: of a program.
        stages: of loops, whose next values are read ahead; 3 is what Triton takes by itself.
    """

    __slots__ = (
        "_blocks",
        "_constants",
        "_device",
        "_function",
        "_kernel",
        "_metadata",
        "_names",
        "_rest",
        "_run",
        "_stages",
        "_warps",
    )

    def __init__(
        self,
        kernel: Any,
        blocks: tuple[int, int],
        names: Sequence[str],
        numbers: Sequence[float],
        constants: Sequence[int],
        warps: int,
        stages: int = 3,
    ) -> None:
        self._kernel, self._blocks, self._warps, self._stages = kernel, blocks, warps, stages
        self._names, self._constants, self._rest = tuple(names), tuple(constants), (*numbers, *constants)
        self._run: Any = None  # what launches the compiled kernel
        self._function: Any = None
        self._metadata: Any = None
        self._device = 0

    def __call__(self, *tensors: Any) -> None:
        """Start the kernel on tensors, which are passed by address."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        if self._run is None or functools.reduce(operator.or_, addresses) % 16:
            self._start_by_triton(addresses)
            return
        first, second = self._blocks
        stream = driver.active.get_current_stream(self._device)
        # Without the hooks of Triton's profiler.
        self._run(first, second, 1, stream, self._function, self._metadata, None, None, None, *addresses, *self._rest)

    def _start_by_triton(self, addresses: Sequence[int]) -> None:
        """Let Triton compile the kernel if need be, and start it; keep what it compiled for aligned addresses."""
        pointers = [TypedAddress(address, name) for address, name in zip(addresses, self._names)]
        grid = (*self._blocks, 1)
        # Triton 3.9 asks for a choice of fused multiply-adds, and 3.10 will change what it does without one.
        options = {"num_warps": self._warps, "num_stages": self._stages, "enable_fp_fusion": True}
        compiled = self._kernel[grid](*pointers, *self._rest, **options)
        is_aligned = not functools.reduce(operator.or_, addresses) % 16
        if is_aligned and isinstance(self._kernel, triton.JITFunction):  # else Triton's interpreter
            self._device = driver.active.get_current_device()
            self._run, self._function, self._metadata = compiled.run, compiled.function, compiled.packed_metadata
