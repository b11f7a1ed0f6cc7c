"""When the fast layers compute, and when Paddle's do."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, Iterator, List

import paddle
from paddle import nn

from ...autocast import product_dtype

# Set to 1 for a run with CPU_TUNING False (parallel/tuning.py), or by the user.
PLAIN_LAYERS = "PADDLEVIT_DIST_PLAIN_LAYERS"

_plain_depth: List[bool] = []  # one entry for each open plain_layers()


@contextlib.contextmanager
def plain_layers() -> Iterator[None]:
    """Inside the block every layer computes as Paddle's does, in this whole process."""
    _plain_depth.append(True)
    try:
        yield
    finally:
        _plain_depth.pop()


@functools.lru_cache(maxsize=None)
def is_possible() -> bool:
    """Whether this process can compute with the fast layers: not switched off, and Paddle has MKL's product."""
    if os.environ.get(PLAIN_LAYERS, "0") not in ("", "0"):
        return False
    from .memory import product

    return product() is not None


@paddle.jit.not_to_static
def applies(x: Any, *layers: nn.Layer) -> bool:
    """Whether fast functions may take the tensor ``x`` with the parameters of ``layers``.

    They may for float32 in the host's memory outside of static graphs and automatic mixed precision, if no hook wants
    to see one of the layers at work.
    """
    if _plain_depth or not paddle.in_dynamic_mode() or not is_possible():
        return False
    if not (_is_plain_float(x) and x.size > 0) or product_dtype() is not None:
        return False
    return all(_is_untouched(layer) for layer in layers)


def _is_plain_float(tensor: Any) -> bool:
    return tensor.dtype == paddle.float32 and tensor.place.is_cpu_place()


def _is_untouched(layer: nn.Layer) -> bool:
    if layer._forward_pre_hooks or layer._forward_post_hooks:
        return False
    return all(_is_plain_float(own) and own.is_contiguous() for own in layer._parameters.values() if own is not None)
