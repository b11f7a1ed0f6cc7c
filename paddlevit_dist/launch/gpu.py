"""Settings of Paddle and NVIDIA's libraries in a process that computes on a GPU: precision, algorithms, repetition.

All of it stands in ``prepare``. What is left as Paddle has it, and why:

- ``FLAGS_conv_workspace_size_limit``, 512 MB; PaddleClas gives 1,500 in half precision and 4,000 in its benchmarks.
  Convolutions on tensor cores, which TF32 and half precision use, need little workspace; what needs more is taken from
  the memory that limits the batch.
- ``FLAGS_cudnn_batchnorm_spatial_persistent``, which PaddleClas sets: PyTorch uses this mode with channels last only,
  as it costs accuracy with channels first (ResNeXt-101, by a note in its source), which our convolutions have.
- ``FLAGS_max_inplace_grad_add``, which PaddleClas sets: only the backward pass of a program reads it. Without a program
  Paddle adds gradients in place already.

None of this has been timed on a GPU. A user's own ``FLAGS_cudnn_exhaustive_search`` in the environment wins.
"""

import os
from typing import Any

import paddle

from ..runtime import device_kinds
from ..runtime.transfers import is_on_gpu
from . import tuning

_OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # 0: no library of NVIDIA's uses TF32, whatever a program asks for
_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"
_SEARCH = "FLAGS_cudnn_exhaustive_search"
_REPEATED: dict[str, Any] = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1}
_TENSOR_CORES = 8  # major compute capability from which on there is TF32
_LEGACY_LINEAR = "FLAGS_use_legacy_linear"
_TOLD = [*_REPEATED, _SEARCH, _LEGACY_LINEAR, "FLAGS_conv_workspace_size_limit"]
_TOLD.append("FLAGS_cudnn_batchnorm_spatial_persistent")


def prepare(tf32: bool, deterministic: bool, fixed_shapes: bool) -> None:
    """Set what a process on a GPU computes with; nothing on a CPU. Call before anything is computed: cuBLAS and cuDNN
    read their variables when they are first used.

    Args:
        tf32: products and convolutions of float32 round their factors to TF32, on GPUs that have it. Set either way,
            whatever Paddle's own default is: on in 2.6, off in the CPU build of 3.3.
        deterministic: take the kernels whose results repeat, where Paddle has them: cuDNN's,
            the gradient of an embedding, and a workspace of cuBLAS that does not depend on its streams. Some
            of Paddle's run on a single thread then.
        fixed_shapes: convolutions see few shapes. cuDNN may then time its algorithms for each, once, and keep the
            fastest in place of its guess. With images of any size the search would not end. Not with
            ``deterministic``: which algorithm wins depends on the moment.
    """
    if not is_on_gpu():
        return
    _use_tf32(tf32)
    if deterministic:
        os.environ[_WORKSPACES] = ":4096:8"
        _set_flags({**_REPEATED, _SEARCH: False})
    else:
        _set_flags({} if _SEARCH in os.environ else {_SEARCH: fixed_shapes})


def _use_tf32(allowed: bool) -> None:
    if not allowed:
        os.environ[_OVERRIDE] = "0"  # also where Paddle does not ask its own switches
    core = paddle.base.core
    for switch in ("set_cublas_switch", "set_cudnn_switch"):
        if hasattr(core, switch):
            getattr(core, switch)(allowed)
    # The way of 3.3 otherwise, by cuBLASLt, multiplies float32 without TF32 whatever the switches say.
    _set_flags({_LEGACY_LINEAR: allowed})


def _set_flags(flags: dict[str, Any]) -> None:
    known = paddle.base.core.globals()  # a CPU build has none of cuDNN's
    paddle.set_flags({name: value for name, value in flags.items() if name in known})


def rounds_to_tf32() -> bool:
    """Whether products of float32 on this process's accelerator may round their factors to TF32. Other makers' cards
    than NVIDIA's have such modes that only their libraries know of: they may."""
    if device_kinds.current().is_other:
        return True
    if os.environ.get(_OVERRIDE) == "0" or not paddle.base.core.get_cublas_switch():
        return False
    return paddle.device.cuda.get_device_capability()[0] >= _TENSOR_CORES


def check_product(size: int = 512) -> dict[str, float]:
    """``tuning.check_product`` on this process's accelerator, in the precision that is allowed there."""
    limit = tuning.TF32_LIMIT if rounds_to_tf32() else tuning.FLOAT32_LIMIT
    return tuning.check_product(size, paddle.get_device(), limit)


def settings() -> dict[str, Any] | None:
    """Return what is in force on this process's GPU, for the record of a run; None on a CPU."""
    if not is_on_gpu():
        return None
    known = paddle.base.core.globals()
    flags = paddle.get_flags([name for name in _TOLD if name in known])
    return {"tf32": rounds_to_tf32(), **flags, _WORKSPACES: os.environ.get(_WORKSPACES)}
