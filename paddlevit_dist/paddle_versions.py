"""Everything that differs between the Paddle versions this package runs on (2.6 and 3.x), in one place."""

from __future__ import annotations

from typing import Any

import paddle


def create_accumulators(optimizer: Any) -> None:
    """Make an optimizer allocate its moments before its first step, so that saved ones can be put into them."""
    block = paddle.static.default_main_program().global_block()
    if getattr(optimizer, "helper", None) is None:  # 2.6 makes it in step() only
        optimizer.helper = paddle.base.layer_helper.LayerHelper(type(optimizer).__name__)
    for group in optimizer._param_groups:
        optimizer._create_accumulators(block, [p for p in group["params"] if not p.stop_gradient])
