"""Settings of Paddle and NVIDIA's libraries in a process that computes on a GPU: precision, algorithms, repeatability.

``prepare`` makes all of them. Settings that keep Paddle's default, and why:

- ``FLAGS_conv_workspace_size_limit``, 512 MB; PaddleClas sets 1,500 in half precision and 4,000 in its benchmarks.
  Convolutions on tensor cores, which TF32 and half precision use, need little workspace; a larger one would
  use the memory that limits the batch.
- ``FLAGS_cudnn_batchnorm_spatial_persistent``, which PaddleClas sets: PyTorch uses this mode with channels last only,
  as it costs accuracy with channels first (ResNeXt-101, according to its source), the layout of the convolutions here.
- ``FLAGS_max_inplace_grad_add``, which PaddleClas sets: only a static program's backward pass reads it. Without one
  Paddle adds gradients in place already.

None of these has been timed on a GPU. A user's own ``FLAGS_cudnn_exhaustive_search`` in the environment wins.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import paddle

from ..runtime import device_kinds, paddle_versions
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from . import tuning

_OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # 0: NVIDIA's libraries never use TF32, regardless of a program's settings
_WORKSPACES = "CUBLAS_WORKSPACE_CONFIG"
_SEARCH = "FLAGS_cudnn_exhaustive_search"
_REPEATED: dict[str, Any] = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1}
_TENSOR_CORES = 8  # smallest major compute capability with TF32
_LEGACY_LINEAR = "FLAGS_use_legacy_linear"
_TF32_PRODUCTS = "FLAGS_cublas_allow_tf32"  # of Paddle 3.4, which reads it in place of the switch, at each product
_REPORTED = [*_REPEATED, _SEARCH, _LEGACY_LINEAR, _TF32_PRODUCTS, "FLAGS_conv_workspace_size_limit"]
_REPORTED.append("FLAGS_cudnn_batchnorm_spatial_persistent")
_users: set[int] = set()  # processes that have prepared for a GPU: this one, and those that it is a fork of


def prepare(tf32: bool, deterministic: bool, fixed_shapes: bool, half: bool = False) -> None:
    """Set precision and algorithms of a process on a GPU; do nothing on a CPU.

    Call before anything is computed: cuBLAS and cuDNN read their variables when they are first used.

    Args:
        tf32: round the factors of float32 products and convolutions to TF32, on GPUs that support it. It is always set,
            as Paddle's default differs: on in 2.6, off in the CPU build of 3.3.
        deterministic: use kernels with repeatable results where Paddle has them: cuDNN's, the gradient of an embedding,
            and a cuBLAS workspace that does not depend on its streams. Some kernels of Paddle then use a single thread.
        fixed_shapes: convolutions see few shapes, so cuDNN may time its algorithms once for each and keep the fastest,
            unless ``deterministic``, as the fastest varies. With images of any size the search would not end.
        half: products are computed in half precision.
    """
    if not is_on_gpu():
        return
    require_unforked()
    _users.add(os.getpid())
    _use_tf32(tf32, half)
    if deterministic:
        os.environ[_WORKSPACES] = ":4096:8"
        _set_flags({**_REPEATED, _SEARCH: False})
    else:
        _set_flags({} if _SEARCH in os.environ else {_SEARCH: fixed_shapes})


def require_unforked() -> None:
    """Raise UserError in a fork of a process that computes on a GPU: CUDA does not work there."""
    if is_on_gpu() and _users - {os.getpid()}:
        raise UserError(
            "this process was forked from one that computes on a GPU, where CUDA does not work: fork before the first "
            "Predictor is made, or start processes with multiprocessing.get_context('spawn')"
        )


def _use_tf32(allowed: bool, half: bool) -> None:
    if not allowed:
        os.environ[_OVERRIDE] = "0"  # also where Paddle ignores its own switches
    elif paddle_versions.overrides_tf32():
        os.environ.pop(_OVERRIDE, None)
    core = paddle.base.core
    for switch in ("set_cublas_switch", "set_cudnn_switch"):
        if hasattr(core, switch):
            getattr(core, switch)(allowed)
    # Without the legacy kernel 3.3 multiplies float32 by cuBLASLt, without TF32 regardless of the switches. In half
    # precision that is faster, according to its authors.
    _set_flags({_LEGACY_LINEAR: allowed and not half, _TF32_PRODUCTS: allowed})


def _set_flags(flags: dict[str, Any]) -> None:
    available = paddle.base.core.globals()  # a CPU build lacks cuDNN's flags
    paddle.set_flags({name: value for name, value in flags.items() if name in available})


def read_flags(names: Sequence[str]) -> dict[str, Any]:
    """Return the values of those flags that this build of Paddle has."""
    available = paddle.base.core.globals()
    return paddle.get_flags([name for name in names if name in available])


def rounds_to_tf32() -> bool:
    """Return whether float32 products on this process's accelerator may round their factors to TF32.

    True for accelerators of other vendors: only their libraries know.
    """
    if device_kinds.current().is_other:
        return True
    allowed = read_flags([_TF32_PRODUCTS]).get(_TF32_PRODUCTS)
    if allowed is None:
        allowed = paddle.base.core.get_cublas_switch()
    if os.environ.get(_OVERRIDE) == "0" or not allowed:
        return False
    return paddle.device.cuda.get_device_capability()[0] >= _TENSOR_CORES


def check_product(size: int = 512) -> dict[str, float]:
    """Run ``tuning.check_product`` on this process's accelerator, in its permitted precision."""
    limit = tuning.TF32_LIMIT if rounds_to_tf32() else tuning.FLOAT32_LIMIT
    return tuning.check_product(size, paddle.get_device(), limit)


def time_product(size: int = 8192, repeats: int = 5) -> float:
    """Return the GFLOP/s of float32 products (size, size) on this process's accelerator, in its permitted precision.

    The products are queued one after the other, so that neither launches nor copies to the host are in the time, which
    is that of the fastest of three rounds. 8,192 takes 0.5 GB, and 3 ms of a large GPU for a product.
    """
    factor, seconds = paddle.rand([size, size]), []
    for _ in range(4):  # the first loads the kernel
        started = time.perf_counter()
        for _ in range(repeats):
            product = paddle.matmul(factor, factor)
        product[0, 0].item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    return round(2 * size**3 * repeats / min(seconds[1:]) / 1e9, 1)


def settings() -> dict[str, Any] | None:
    """Return the settings in force on this process's GPU, for the record of a run; None on a CPU."""
    if not is_on_gpu():
        return None
    return {"tf32": rounds_to_tf32(), **read_flags(_REPORTED), _WORKSPACES: os.environ.get(_WORKSPACES)}
