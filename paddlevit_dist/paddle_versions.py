"""Everything that differs between the Paddle versions this package runs on (2.6 and 3.x), in one place."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import paddle


def squared_norm(tensor: paddle.Tensor) -> paddle.Tensor:
    """Sum of the squares of all elements, (1,). Takes a tenth of the time of ``paddle.linalg.norm`` on a CPU; Paddle
    has no public function for it."""
    return paddle._C_ops.squared_l2_norm(tensor)


def create_accumulators(optimizer: Any) -> None:
    """Make an optimizer allocate its moments before its first step, so that saved ones can be loaded."""
    block = paddle.static.default_main_program().global_block()
    if getattr(optimizer, "helper", None) is None:  # 2.6 only creates it in step()
        optimizer.helper = paddle.base.layer_helper.LayerHelper(type(optimizer).__name__)
    for group in optimizer._param_groups:
        optimizer._create_accumulators(block, [p for p in group["params"] if not p.stop_gradient])


@contextlib.contextmanager
def checked_operations() -> Iterator[None]:
    """Inside the block, the first operation whose result is not finite raises a ``RuntimeError`` that names it.

    This is what ``paddle.amp.debugging.enable_tensor_checker`` sets; its own ``TensorCheckerConfig`` ends the process
    with a segmentation fault in 2.6, and draws a seed in 3.x.
    """
    names = ("FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level")
    before = paddle.get_flags(list(names))
    paddle.set_flags(dict(zip(names, (True, 0))))
    try:
        yield
    finally:
        paddle.set_flags(before)
