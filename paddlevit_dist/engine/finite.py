"""An update that is not finite changes nothing: what is copied for that, and how the host learns about it."""

from __future__ import annotations

from typing import Callable, Iterable, List, Optional, Union

import paddle

from .. import paddle_versions

Flag = Union[bool, paddle.Tensor]  # whether an update is finite; a tensor, bool (), where only the device knows yet


class Kept:
    """Copies of tensors, for restoring them."""

    def __init__(self, tensors: Iterable[paddle.Tensor]) -> None:
        self._pairs = [(tensor, tensor.detach().clone()) for tensor in tensors]

    @paddle.no_grad()
    def put_back_unless(self, finite: Flag) -> None:
        """Restore the tensors' earlier values, or keep the present ones."""
        if finite is True:
            return
        for tensor, earlier in self._pairs:
            if finite is not False:
                chosen = finite.reshape([1] * len(tensor.shape)).expand(tensor.shape)
                earlier = paddle.where(chosen, tensor, earlier)
            paddle.assign(earlier, output=tensor)


def gradient_norm(parameters: List[paddle.Tensor], largest: Optional[float]) -> paddle.Tensor:
    """The global norm of the gradients, float32 with one element; above ``largest`` they are scaled down to it."""
    if largest:
        # The optimizer's own clipping would take each parameter group by itself.
        return paddle.nn.utils.clip_grad_norm_(parameters, largest)
    squares = [paddle_versions.squared_norm(p.grad) for p in parameters if p.grad is not None]
    return paddle.add_n(squares).sqrt() if squares else paddle.zeros([1])


def read_later(flag: Flag) -> Callable[[], bool]:
    """Begin to fetch a flag from the device; calling the result waits for it, but not for what is queued after it."""
    if isinstance(flag, bool):
        return lambda: flag
    if not flag.place.is_gpu_place():
        return lambda: bool(flag.item())
    copy = flag._copy_to(paddle.CUDAPinnedPlace(), False)
    arrived = paddle.device.Event()
    arrived.record()

    def wait() -> bool:
        arrived.synchronize()
        return bool(copy.numpy())

    return wait
