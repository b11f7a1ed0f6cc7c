"""Random numbers of networks drawn on the host by NumPy, so that a GPU and a CPU drop and sample the same.

A GPU has a generator of its own. ``replace`` exchanges what draws while a network trains: stochastic depth and samples
of boxes (``paddle.rand``), and dropout. Attention that is fused in half precision draws its dropout on the device all
the same.
"""

from typing import Any

import numpy as np
import paddle

_generator = np.random.default_rng(0)


def restart(seed: int) -> None:
    """Begin the numbers of an update."""
    global _generator
    _generator = np.random.default_rng(seed)


def replace() -> None:
    """Draw on the host from now on, in this process."""
    paddle.rand = rand
    for module in (paddle.nn.functional, paddle.nn.functional.common):
        module.dropout = dropout


def rand(shape: Any, dtype: Any = "float32", name: str | None = None) -> paddle.Tensor:
    """Return numbers of [0, 1), of this shape, on the device that is used."""
    return paddle.to_tensor(_generator.random([int(size) for size in shape], np.float32)).astype(dtype)


def dropout(
    x: Any,
    p: Any = 0.5,
    axis: Any = None,
    training: bool = True,
    mode: str = "upscale_in_train",
    name: str | None = None,
    inplace: bool = False,
) -> Any:
    """Drop values of ``x`` with the probability ``p``, whole slices across the axes that ``axis`` does not name."""
    assert mode == "upscale_in_train", mode
    if not training or p == 0:
        return x
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    shape = [x.shape[place] if place in axes else 1 for place in range(x.ndim)]
    kept = (_generator.random(shape, np.float32) >= p).astype(np.float32) / max(1.0 - p, 1e-6)
    return x * paddle.to_tensor(kept).astype(x.dtype)
