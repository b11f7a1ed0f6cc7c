"""What would make the host wait for a GPU, counted on a CPU.

Sources are Paddle's own (2.6 and 3.x): ``paddle/fluid/pybind/eager_method.cc`` for what copies, and the operators' GPU
kernels for what waits inside. An operator that takes its data to the host waits in its gradient's kernel again.
"""

import contextlib
import functools
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import paddle

from paddlevit_dist.core.runtime import transfers
from support.networks.plain_layers import plain_layers

_ROOT = Path(transfers.__file__).parents[3]
_PACKAGE = "paddlevit_dist/"

# Values that Python asks for.
_READS = ("numpy", "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__array__")

# Operators whose GPU kernels make the host wait, and how often.
_OPERATORS = {
    "isfinite": 2,  # seen on an H100
    "isnan": 2,
    "isinf": 2,
    "nonzero": 1,  # how many there are decides the result's shape; so in the next three
    "masked_select": 1,
    "unique": 1,
    "unique_consecutive": 1,
    "nms": 1,  # the table of overlaps goes to the host, which chooses
    "roi_align": 1,  # reads ``boxes_num``, if that is a tensor: roi_align_kernel.cu; so in the next two
    "roi_pool": 1,
    "psroi_pool": 1,
    "bincount": 1,  # reads the largest value
    "segment_pool": 1,  # reads the last row's number
    "repeat_interleave_with_tensor_index": 1,  # reads the sum of the numbers
}
# Of a tensor that is one row: Thrust, by which Paddle then sorts and adds up, waits for the stream (all of 2.6, and 3.x
# until it took CUB). ``topk`` never does.
_OF_ONE_ROW = ("argsort", "cumsum")
_BY_NUMBERS = ("roi_align", "roi_pool", "psroi_pool")


class Wait(NamedTuple):
    """Attributes:
    kind: "read" of a value, "copy" of the host's data to the device, or an operator's name.
    place: the line of this package that asked for it, or of the test.
    """

    kind: str
    place: str


class Waits:
    """The waits of a ``with counted_waits()`` block, in order; one entry for each."""

    def __init__(self) -> None:
        self.list: list[Wait] = []
        self.transfers = 0  # to the device that nobody waited for
        self._thread = threading.get_ident()
        self._is_inside = False

    def __len__(self) -> int:
        return len(self.list)

    def of(self, *kinds: str) -> int:
        """How many there are of these kinds."""
        return sum(wait.kind in kinds for wait in self.list)

    def __repr__(self) -> str:
        """The places, most frequent first: what a failing test should show."""
        rows = [f"{number:5} {kind:12} {place}" for (kind, place), number in Counter(self.list).most_common()]
        return "\n".join([f"{len(self)} waits", *rows])

    def add(self, kind: str, number: int = 1) -> None:
        self.list += [Wait(kind, _place())] * number

    @contextlib.contextmanager
    def counting(self, kind: str, number: int = 1) -> Iterator[None]:
        """Count what is called inside as one, whatever it calls itself; only in the thread of the block."""
        if self._is_inside or threading.get_ident() != self._thread:
            yield
            return
        self._is_inside = True
        try:
            if number:
                self.add(kind, number)
            yield
        finally:
            self._is_inside = False


@contextlib.contextmanager
def counted_waits() -> Iterator[Waits]:
    """Count the waits inside the block as if this process were on a GPU: ``transfers`` takes the GPU's branches, with
    copies on the CPU instead of those to and from pinned memory, and layers are Paddle's. Operators compute as ever."""
    waits = Waits()
    with contextlib.ExitStack() as patches:
        patches.enter_context(plain_layers())

        def patch(owner: Any, name: str, replacement: Any) -> None:
            patches.enter_context(mock.patch.object(owner, name, replacement))

        for name in _READS:
            patch(paddle.Tensor, name, _counting_read(waits, getattr(paddle.Tensor, name)))
        for name in ("__getitem__", "__setitem__"):
            patch(paddle.Tensor, name, _counting_index(waits, getattr(paddle.Tensor, name)))
        patch(paddle.Tensor, "set_value", _counting_set_value(waits, paddle.Tensor.set_value))
        patch(paddle.Tensor, "_copy_to", _counting_copy(waits, paddle.Tensor._copy_to))
        patch(paddle, "to_tensor", _counting_to_tensor(waits, paddle.to_tensor))
        for name, number in {**_OPERATORS, **dict.fromkeys(_OF_ONE_ROW, 1)}.items():
            if hasattr(paddle._C_ops, name):
                replacement = _counting_operator(waits, name, number, getattr(paddle._C_ops, name))
                patch(paddle._C_ops, name, replacement)
        _patch_transfers(waits, patch)
        yield waits


def _patch_transfers(waits: Waits, patch: Callable[[Any, str, Any], None]) -> None:
    def pinned(array: np.ndarray) -> paddle.Tensor:
        waits.transfers += 1
        with waits.counting("", 0):
            return paddle.to_tensor(array)

    patch(transfers, "is_on_gpu", lambda: True)
    patch(transfers, "_pinned_place", paddle.CPUPlace)
    patch(transfers, "_pin", pinned)
    patch(transfers, "_begin_copy", lambda tensor, place: tensor.detach().clone())
    patch(transfers, "_after_this", lambda: lambda: waits.add("read"))


def _counting_read(waits: Waits, original: Any) -> Any:
    @functools.wraps(original)
    def read(self: paddle.Tensor, *arguments: Any, **options: Any) -> Any:
        # What ``transfers`` reads has arrived in pinned memory: its waits are counted where it waits.
        is_here = sys._getframe(1).f_code.co_filename == transfers.__file__ or 0 in self.shape
        with waits.counting("read", 0 if is_here else 1):
            return original(self, *arguments, **options)

    return read


def _counting_index(waits: Waits, original: Any) -> Any:
    @functools.wraps(original)
    def index(self: paddle.Tensor, key: Any, *value: Any) -> Any:
        parts = [*(key if isinstance(key, tuple) else (key,)), *value]
        kind = ""
        if any(isinstance(part, (list, np.ndarray)) and np.size(part) for part in parts):
            kind = "copy"
        if any(isinstance(part, paddle.Tensor) and part.dtype == paddle.bool for part in parts):
            kind = "nonzero"
        # slice_utils.h takes the numbers of a slice, and a number that is a tensor without axes, to the host.
        if any(
            isinstance(part, slice) and _has_tensor(part) or _is_number(part)
            for part in parts[: len(parts) - len(value)]
        ):
            kind = "read"
        with waits.counting(kind, 1 if kind else 0):
            return original(self, key, *value)

    return index


def _is_number(part: Any) -> bool:
    return isinstance(part, paddle.Tensor) and part.ndim == 0 and part.dtype != paddle.bool


def _has_tensor(part: slice) -> bool:
    return any(isinstance(end, paddle.Tensor) for end in (part.start, part.stop, part.step))


def _counting_set_value(waits: Waits, original: Any) -> Any:
    @functools.wraps(original)
    def set_value(self: paddle.Tensor, value: Any) -> Any:
        with waits.counting("set_value"):
            return original(self, value)

    return set_value


def _counting_copy(waits: Waits, original: Any) -> Any:
    @functools.wraps(original)
    def copy_to(self: paddle.Tensor, place: Any, blocking: bool) -> Any:
        with waits.counting("copy", 1 if blocking else 0):
            return original(self, place, blocking)

    return copy_to


def _counting_to_tensor(waits: Waits, original: Any) -> Any:
    @functools.wraps(original)
    def to_tensor(data: Any, *arguments: Any, **options: Any) -> paddle.Tensor:
        stays = isinstance(options.get("place"), paddle.CPUPlace) or isinstance(data, paddle.Tensor)
        with waits.counting("copy", 0 if stays else 1):
            return original(data, *arguments, **options)

    return to_tensor


def _counting_operator(waits: Waits, name: str, number: int, original: Any) -> Any:
    @functools.wraps(original)
    def operator(*arguments: Any, **options: Any) -> Any:
        tensors = [value for value in arguments if isinstance(value, paddle.Tensor)]
        shape = tensors[0].shape if tensors else [0]
        if 0 in shape or (name in _OF_ONE_ROW and math.prod(shape) != max(shape, default=0)):
            return original(*arguments, **options)
        if name in _BY_NUMBERS and arguments[2] is None:
            return original(*arguments, **options)
        has_gradient = name in _BY_NUMBERS and paddle.is_grad_enabled() and not tensors[0].stop_gradient
        with waits.counting(name, number * (1 + has_gradient)):
            return original(*arguments, **options)

    return operator


def _place() -> str:
    """The innermost line of this package outside of ``transfers``; else the innermost of the tests."""
    lines = []  # without Paddle's own, which a virtual environment puts below the root, too
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        here = _ROOT in path.parents and "site-packages" not in path.parts
        if here and str(path) not in (__file__, transfers.__file__):
            lines.append(f"{path.relative_to(_ROOT)}:{frame.f_lineno}")
        frame = frame.f_back
    return next((line for line in lines if line.startswith(_PACKAGE)), lines[0] if lines else "")
