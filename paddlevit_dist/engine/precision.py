"""Half-precision training: autocast and gradient scaling, where the device has the kernels."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Dict, Optional

import paddle


class Precision:
    """Forward in float16 and scaled gradients with ``requested`` on a GPU, plain float32 otherwise.

    Paddle's CPU build accepts autocast and scaler but computes in float32: ``notice`` says so.
    """

    def __init__(self, requested: bool) -> None:
        on_gpu = paddle.get_device().startswith("gpu")
        self.enabled = requested and on_gpu
        self.notice = "-amp: this device has no half-precision kernels, training goes on in float32"
        if not requested or on_gpu:
            self.notice = ""
        self.scaler: Optional[Any] = paddle.amp.GradScaler() if self.enabled else None

    def autocast(self) -> ContextManager:
        """Context of the forward pass."""
        return paddle.amp.auto_cast(level="O1") if self.enabled else contextlib.nullcontext()

    def backward(self, loss: paddle.Tensor) -> None:
        """Backward pass of the loss, scaled if need be."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def unscale(self, optimizer: Any) -> None:
        """Bring gradients back to their true size, before they are clipped."""
        if self.scaler:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: Any) -> None:
        """Update the weights, unless the scaler found a gradient that is not finite."""
        if self.scaler:
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()

    def state(self) -> Dict[str, Any]:
        """Plain numbers and lists for the checkpoint."""
        state = self.scaler.state_dict() if self.scaler else {}
        return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in state.items()}

    def restore(self, state: Dict[str, Any]) -> None:
        """Put ``state`` back; a run without a scaler ignores one."""
        if self.scaler and state:
            self.scaler.load_state_dict(state)
