"""Transfers between host and device memory without waiting for the device.

``paddle.to_tensor(array)`` on a GPU copies from pageable memory: the host waits until all queued work is done. Each
``tensor.numpy()`` waits as well. The functions here use pinned memory, which the GPU reads and writes by itself: copies
are queued like kernels, and a reader waits once for all tensors.

On a CPU there is nothing to wait for, and these are ``paddle.to_tensor`` and ``tensor.numpy()``.
"""

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import paddle

from . import device_graph, device_kinds


def to_device(array: np.ndarray) -> paddle.Tensor:
    """Copy an array to a tensor on this process's device. On a GPU the host continues at once.

    A transfer costs the host about as much as a few small kernels: concatenate the arrays of several images first, and
    use ``constant`` for arrays that do not change between steps. The array, of any shape and plain dtype, which the
    tensor keeps, may be changed afterwards.
    """
    device_graph.require_outside("copy an array to the device")
    if not array.size:  # Paddle cannot copy a tensor without elements: the result would have neither place nor shape
        return paddle.zeros(list(array.shape), dtype=str(array.dtype))
    if not is_on_gpu():
        return paddle.to_tensor(array)
    # Paddle keeps the pinned memory until the stream has finished the copy.
    return _begin_copy(_pin(array), paddle.framework._current_expected_place())


def batch_to_device(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the arrays of a collated batch to tensors on this process's device, and keep its other values."""
    return {name: to_device(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def to_device_together(*arrays: np.ndarray) -> list[paddle.Tensor]:
    """Copy arrays of one axis and dtype, none of them empty, to this process's device in one transfer."""
    return list(paddle.split(to_device(np.concatenate(arrays)), [len(array) for array in arrays]))


def read_later(*tensors: paddle.Tensor) -> Callable[[], list[np.ndarray]]:
    """Start copies of tensors from the device; the returned function waits for them and returns arrays.

    The arrays have the values at the time of this call. The wait does not include work queued after it.
    """
    device_graph.require_outside("read from the device")
    if not is_on_gpu():
        arrays = [tensor.numpy() for tensor in tensors]
        return lambda: arrays
    copies = [_begin_copy(tensor, _pinned_place()) if tensor.size else tensor for tensor in tensors]
    wait = _after_this()

    def values() -> list[np.ndarray]:
        wait()
        return [copy.numpy() for copy in copies]

    return values


def read(*tensors: paddle.Tensor) -> list[np.ndarray]:
    """Return the values of tensors as arrays; the host waits once for all of them."""
    return read_later(*tensors)()


def constant(make: Callable[..., np.ndarray], *arguments: Hashable) -> paddle.Tensor:
    """Return the array ``make(*arguments)`` as a tensor on this process's device, cached: callers must not change it.

    ``make`` returns equal arrays for equal arguments; it is a module's function, so that it is the same object next
    time.
    """
    if not paddle.in_dynamic_mode():  # a tensor of a static program belongs to that program
        return paddle.to_tensor(make(*arguments))
    return device_graph.keep(_keep(paddle.get_device(), make, *arguments))


@functools.lru_cache(maxsize=64)
def _keep(device: str, make: Callable[..., np.ndarray], *arguments: Hashable) -> paddle.Tensor:
    return to_device(np.asarray(make(*arguments)))


def is_on_gpu() -> bool:
    """Return whether this process computes on a CUDA GPU, or on another device that queues work."""
    return device_kinds.current().queues


# Only these functions need a GPU: a test on a CPU replaces them and ``is_on_gpu``.


def _pinned_place() -> paddle.CUDAPinnedPlace:
    return paddle.CUDAPinnedPlace()


def _pin(array: np.ndarray) -> paddle.Tensor:
    return paddle.to_tensor(array, place=_pinned_place())


def _begin_copy(tensor: paddle.Tensor, place: paddle.CUDAPinnedPlace) -> paddle.Tensor:
    return tensor._copy_to(place, False)


def _after_this() -> Callable[[], None]:
    """Return a function that waits for all work that is queued on the device now."""
    arrived = paddle.device.Event()
    arrived.record()
    return arrived.synchronize
