"""Batch normalization over the rows of all ranks, with one small collective forward and one backward.

*Rows* are the values that a channel's statistics average: points, or batch x positions of an image. Paddle's
SyncBatchNorm has no CPU kernel and takes no empty tensors. ``DistributedBatchNorm`` is composed of many operations that
every device supports. ``convert_batch_norm`` decides which of the two a layer becomes.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..runtime import device_kinds
from ..runtime.transfers import is_on_gpu
from . import world
from .batch_moments import (
    MOST_POINTS,
    MOST_POSITIONS,
    MOST_ROWS,
    RankStatistics,
    channel_sum,
    compute_local_moments,
    count_values,
    kernel_divides_by_rows,
    scale_and_shift,
)
from .collectives import all_reduce_sum

_PADDLE_BATCH_NORMS = (paddle.nn.BatchNorm1D, paddle.nn.BatchNorm2D, paddle.nn.BatchNorm3D, paddle.nn.SyncBatchNorm)
_THIS_PACKAGE = __name__.partition(".")[0] + "."
_CONVERTIBLE = (*_PADDLE_BATCH_NORMS, paddle.nn.BatchNorm)
_CONVERTIBLE_FORWARDS = {kind.forward for kind in _CONVERTIBLE}


class _FormattedLayer:
    _data_format: str

    @property
    def _channels_last(self) -> bool:
        layout = getattr(self, "_data_layout", "") or self._data_format  # _data_layout: of paddle.nn.BatchNorm
        return layout.endswith("C") and len(layout) > 2

    def _find_format(self, x: paddle.Tensor) -> str:
        middle = {2: "", 3: "L", 4: "HW", 5: "DHW"}[x.ndim]
        return f"N{middle}C" if self._channels_last or x.ndim == 2 else f"NC{middle}"


class DistributedBatchNorm(_FormattedLayer, paddle.nn.Layer):
    """Batch normalization (Ioffe and Szegedy, 2015, arXiv 1502.03167) over the rows of this process, or of all ranks.

    Input and output: float32, float64, float16 or bfloat16, (rows, channels) or (batch, channels, ...), or channels
    last if ``data_format`` ends in C. ``rows`` may be 0: such a rank still takes part in the collectives, and the
    gradients of its weight and bias are zero. Its loss must then depend on the output (see ``wrapping.build_zero``), or
    the other ranks wait for it in the backward pass.

    Weights, statistics and their state-dict names match ``paddle.nn.BatchNorm1D``. While ``synchronized`` is false, or
    with one process, the result equals that layer's, with one exception: if all ranks together have a single row, that
    layer returns it unchanged, while this one returns its bias. The running variance divides by rows - 1, as in PyTorch
    and MinkowskiEngine. A single row leaves it unchanged, where PyTorch raises an error. ``momentum`` is the fraction
    of the running statistics kept at each step (1 minus PyTorch's). ``convert_batch_norm`` sets ``synchronized``.
    """

    synchronized = False
    _use_global_stats: bool | None = None
    _act: str | None = None

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__()
        self._momentum = _as_stored(momentum)
        self._epsilon = epsilon
        self._data_format = data_format
        ones = paddle.nn.initializer.Constant(1.0)
        self.weight = self.create_parameter([num_features], default_initializer=ones)
        self.bias = self.create_parameter([num_features], is_bias=True)
        self._mean = self.create_parameter([num_features], is_bias=True)
        self._variance = self.create_parameter([num_features], default_initializer=ones)
        self._mean.stop_gradient = self._variance.stop_gradient = True

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalize ``x``; in training mode, update the running statistics."""
        normalized = self._normalize(x)
        return normalized if self._act is None else getattr(F, self._act)(normalized)

    @paddle.jit.not_to_static
    def _normalize(self, x: paddle.Tensor) -> paddle.Tensor:
        exchanges = exchanges_statistics(self)
        uses_batch = self.training and not self._use_global_stats
        if uses_batch and (exchanges or count_values(x) <= self._mean.shape[0]):  # one row, or none
            return _NormalizeFunction.apply(x, self.weight, self.bias, self, exchanges)
        if not count_values(x):  # kernels reject empty tensors
            return x
        if uses_batch and has_many_rows(self, x):
            return _normalize_in_double(self, x)
        with _kernel_variance(self, x) as variance:
            return F.batch_norm(
                x,
                self._mean,
                variance,
                self.weight,
                self.bias,
                training=uses_batch,
                momentum=self._momentum,
                epsilon=self._epsilon,
                data_format=self._find_format(x),
            )

    def _flat(self, x: paddle.Tensor) -> paddle.Tensor:
        """Reshape to (rows, channels) or (batch, channels, positions)."""
        if self._channels_last or x.ndim == 2:
            return x.reshape([-1, self._mean.shape[0]])
        return x.reshape([x.shape[0], x.shape[1], -1])

    def _update_running(self, statistics: "RankStatistics") -> None:
        rows, variance = statistics.rows, statistics.variance
        variance = variance * (rows / paddle.clip(rows - 1.0, min=1.0))
        for running, new, min_rows in ((self._mean, statistics.mean, 1), (self._variance, variance, 2)):
            keep = paddle.where(rows >= min_rows, paddle.full_like(rows, self._momentum), paddle.ones_like(rows))
            mixed = keep * running.astype("float64") + (1.0 - keep) * new
            paddle.assign(mixed.astype(running.dtype), output=running)  # set_value of Paddle 2.6 goes through the host

    def extra_repr(self) -> str:
        """Return the settings that ``print(model)`` shows."""
        return f"num_features={self._mean.shape[0]}, momentum={self._momentum}, epsilon={self._epsilon}"


def has_many_rows(layer: paddle.nn.Layer, x: paddle.Tensor) -> bool:
    """Return whether statistics would lose digits, because the CPU's kernel adds too many values in float32."""
    if not paddle.in_dynamic_mode() or not x.place.is_cpu_place() or x.dtype == paddle.float64:
        return False
    if x.ndim == 2:
        return x.shape[0] > MOST_POINTS
    if layer._channels_last:
        return count_values(x) > MOST_ROWS * layer._mean.shape[0]
    return math.prod(x.shape[2:]) > MOST_POSITIONS


def _normalize_in_double(layer: paddle.nn.Layer, x: paddle.Tensor) -> paddle.Tensor:
    """Normalize ``x`` by its own rows as Paddle's kernel does, in float64, and update the running statistics."""
    with paddle.amp.auto_cast(enable=False), _kernel_variance(layer, x) as kernel_variance:
        mean, variance = (value.detach().astype("float64") for value in (layer._mean, kernel_variance))
        weight, bias = (None if value is None else value.astype("float64") for value in (layer.weight, layer.bias))
        normalized = F.batch_norm(
            x.astype("float64"),
            mean,
            variance,
            weight,
            bias,
            training=True,
            momentum=layer._momentum,
            epsilon=layer._epsilon,
            data_format=layer._find_format(x),
        )
        paddle.assign(mean.astype(layer._mean.dtype), output=layer._mean)
        paddle.assign(variance.astype(kernel_variance.dtype), output=kernel_variance)
        return normalized.astype(x.dtype)


_BATCH_NORMS = (*_CONVERTIBLE, DistributedBatchNorm)


class _UnbiasedVariance(_FormattedLayer):
    """Mixin for Paddle's layers whose running variance divides by rows - 1, as in PyTorch."""

    @paddle.jit.not_to_static
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Run the layer's forward pass with a scaled running variance."""
        parameters = self._parameters  # type: ignore[attr-defined]
        running = parameters["_variance"]
        layer: paddle.nn.Layer = self
        if layer.training and not layer._use_global_stats and has_many_rows(layer, x):
            normalized, act = _normalize_in_double(layer, x), getattr(layer, "_act", None)
            return normalized if act is None else getattr(F, act)(normalized)
        with _kernel_variance(self, x) as parameters["_variance"]:
            try:
                return super().forward(x)  # type: ignore[misc]
            finally:
                parameters["_variance"] = running


_UNBIASED = {kind: type(kind.__name__, (_UnbiasedVariance, kind), {"__module__": __name__}) for kind in _CONVERTIBLE}
_CONVERTIBLE_FORWARDS.add(_UnbiasedVariance.forward)


def unbias_running_variance(model: paddle.nn.Layer) -> paddle.nn.Layer:
    """Make Paddle's batch normalizations in ``model`` compute PyTorch's running variance, in place, and return it."""
    for layer in model.sublayers(include_self=True):
        layer.__class__ = _UNBIASED.get(type(layer), type(layer))
    return model


@contextlib.contextmanager
def _kernel_variance(layer: paddle.nn.Layer, x: paddle.Tensor) -> Iterator[paddle.Tensor]:
    """Give Paddle's kernel a running variance whose update becomes PyTorch's.

    A kernel that stores a variance divided by rows gets one scaled by s = (rows - 1) / rows. After the update it is
    scaled back, which gives the unbiased one: ``(m s v + (1 - m) b) / s = m v + (1 - m) b / s``, with momentum m,
    running variance v and the batch's biased variance b. It is a separate tensor, because the gradient keeps the
    kernel's input. A compiled program contains the same operations, with the rows of its shapes. With a single row,
    Paddle's kernels leave the statistics unchanged.
    """
    running, is_native = layer._variance, isinstance(layer, paddle.nn.SyncBatchNorm)
    uses_batch = layer.training and not layer._use_global_stats
    rows = 0
    if uses_batch and (is_native or kernel_divides_by_rows(x)):
        rows = count_values(x) // running.shape[0] * (world.world_size() if is_native else 1)
    if rows < 2:
        yield running
        return
    share = (rows - 1) / rows
    scaled = paddle.scale(running, share)  # tracing for a compiled program takes functions, not operators
    yield scaled
    with paddle.no_grad():
        paddle.assign(paddle.scale(scaled, 1.0 / share), output=running)


def _as_stored(momentum: float) -> float:
    """Round to float32 as Paddle's kernels do, so that results agree in float64 as well."""
    return float(np.float32(momentum))


def combine_moments(layer: paddle.nn.Layer, local: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return mean and variance of a training step, float32 (channels,), and its rows, float64 (1,).

    The running statistics are updated as the layer's own forward pass does.

    Args:
        layer: one of Paddle's batch normalizations or a ``DistributedBatchNorm``.
        local: the row count of this rank, the means and the sums of squared deviations, float64 (1 + 2 channels,).
    """
    statistics = RankStatistics(local, exchanges_statistics(layer))
    DistributedBatchNorm._update_running(layer, statistics)
    mean, variance = (value.astype("float32") for value in (statistics.mean, statistics.variance))
    return mean, variance, statistics.rows


def exchanges_statistics(layer: paddle.nn.Layer) -> bool:
    """Return whether the statistics of a batch normalization in training cover all ranks."""
    return isinstance(layer, DistributedBatchNorm) and layer.synchronized and world.world_size() > 1


def divides_by_all_but_one(layer: paddle.nn.Layer) -> bool:
    """Return whether the layer's running variance divides by rows - 1, on every device."""
    return isinstance(layer, (DistributedBatchNorm, _UnbiasedVariance))


class _NormalizeFunction(paddle.autograd.PyLayer):
    @staticmethod
    def forward(
        ctx,
        x: paddle.Tensor,
        weight: paddle.Tensor | None,
        bias: paddle.Tensor | None,
        layer: DistributedBatchNorm,
        exchanges: bool,
    ) -> paddle.Tensor:
        with paddle.amp.auto_cast(enable=False):
            channels, dtype = layer._mean.shape[0], layer._mean.dtype
            flat = layer._flat(x).astype(dtype) if count_values(x) else paddle.zeros([0, channels], dtype)
            statistics = RankStatistics(compute_local_moments(flat), exchanges)
            layer._update_running(statistics)
            mean, variance = (value.astype(flat.dtype) for value in (statistics.mean, statistics.variance))
            ctx.layer, ctx.exchanges = layer, exchanges
            # A disabled parameter is None and gets no gradient.
            ctx.needed = [None if t is None else not t.stop_gradient for t in (x, weight, bias)]
            scale = paddle.ones_like(mean) if weight is None else weight
            ctx.save_for_backward(x, mean, variance, statistics.rows, scale)
            if not count_values(x):
                return paddle.zeros(x.shape, dtype=x.dtype)
            y = F.batch_norm(flat, mean, variance, weight, bias, training=False, epsilon=layer._epsilon)
            return y.reshape(x.shape).astype(x.dtype)

    @staticmethod
    def backward(ctx, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        x, mean, variance, rows, weight = ctx.saved_tensor()
        layer = ctx.layer
        channels = mean.shape[0]
        has_rows = bool(count_values(x))
        local = paddle.zeros([2 * channels], dtype="float64")
        with paddle.amp.auto_cast(enable=False):
            if has_rows:
                grad_output = layer._flat(gradient).astype(mean.dtype)
                x_hat = F.batch_norm(
                    layer._flat(x).astype(mean.dtype), mean, variance, training=False, epsilon=layer._epsilon
                )
                local = paddle.concat([channel_sum(grad_output), channel_sum(grad_output * x_hat)]).astype("float64")
            bias_gradient, weight_gradient = local[:channels].astype(mean.dtype), local[channels:].astype(mean.dtype)
            total = local.clone()
            if ctx.exchanges:
                all_reduce_sum(total)
            x_gradient = paddle.zeros(x.shape, dtype=x.dtype)
            if has_rows and ctx.needed[0]:
                total = (total / rows).astype(mean.dtype)
                scale = weight / (variance + layer._epsilon).sqrt()  # (channels,)
                x_gradient = scale_and_shift(grad_output, scale, -scale * total[:channels])
                x_gradient = x_gradient + scale_and_shift(x_hat, -scale * total[channels:])
                x_gradient = x_gradient.reshape(x.shape).astype(x.dtype)
        gradients = zip((x_gradient, weight_gradient, bias_gradient), ctx.needed)
        return tuple(value if needed else None for value, needed in gradients if needed is not None)


def convert_batch_norm(model: paddle.nn.Layer, native: bool | None = None) -> paddle.nn.Layer:
    """Make every batch normalization in ``model`` use the statistics of all ranks' rows. Every rank must call this.

    Paddle's layers become layers of another class with the same parameters, statistics and state-dict names, so an
    existing optimizer keeps working. Subclasses with their own ``forward`` are left unchanged.

    With ``native``, ``BatchNorm2D`` and ``3D`` become Paddle's ``SyncBatchNorm``: a few kernels and one collective each
    way, where ``DistributedBatchNorm`` takes dozens. Two things differ. Each rank counts equally, regardless of its
    number of rows (ranks may pad images to different sizes). And the variance is the mean square minus the squared
    mean, as in Paddle's other GPU kernels, which loses digits if the mean is many deviations from 0. All other layers
    become ``DistributedBatchNorm``: ``BatchNorm1D``, for which a rank may have no rows, and layers that
    ``SyncBatchNorm`` does not support (without scale or shift, with an activation, or with fixed statistics).

    Args:
        model: the model, changed in place.
        native: whether to use ``SyncBatchNorm``; None: on GPUs, if a test shows that it exchanges statistics.

    Returns:
        The model.
    """
    takes_native = native_synchronizes() if native is None else native
    for layer in model.sublayers(include_self=True):
        if type(layer).forward in _CONVERTIBLE_FORWARDS:
            native_kind = _UNBIASED[paddle.nn.SyncBatchNorm]
            layer.__class__ = native_kind if takes_native and _fits_native(layer) else DistributedBatchNorm
            layer._momentum = _as_stored(layer._momentum)
        if isinstance(layer, DistributedBatchNorm):
            layer.synchronized = True
    return model


def _fits_native(layer: paddle.nn.Layer) -> bool:
    is_dense = isinstance(layer, (paddle.nn.BatchNorm2D, paddle.nn.BatchNorm3D))
    is_scaled = layer.weight is not None and layer.bias is not None
    return isinstance(layer, paddle.nn.SyncBatchNorm) or (is_dense and is_scaled and not layer._use_global_stats)


@paddle.no_grad()
def native_synchronizes() -> bool:
    """Test whether Paddle's ``SyncBatchNorm`` exchanges statistics here. Every rank must call this.

    Its kernel silently normalizes each rank separately without a communicator of its process group, and Paddle 2.6
    raises an error if that group has not been used before. So this function first runs a collective, then checks the
    layer's mean of a tensor that is 1 on the last rank and 0 on the others, which no rank can compute alone.
    """
    size = world.world_size()
    if size == 1 or not (is_on_gpu() or device_kinds.current().native_batch_norm):
        return False
    all_reduce_sum(paddle.zeros([1]))
    layer = paddle.nn.SyncBatchNorm(1, momentum=0.0)
    layer(paddle.full([1, 1, 1, 2], float(world.rank() == size - 1)))
    return abs(layer._mean.item() - 1.0 / size) < 1e-3 / size


def set_batch_norm_momentum(model: paddle.nn.Layer, momentum: float) -> int:
    """Set the kept fraction (1 minus PyTorch's momentum) of every batch norm in ``model``, and return their number."""
    layers = [sublayer for sublayer in model.sublayers(include_self=True) if isinstance(sublayer, _BATCH_NORMS)]
    for layer in layers:
        layer._momentum = _as_stored(momentum)
    return len(layers)


def list_batch_norms(model: paddle.nn.Layer) -> dict[str, Any]:
    """Return the batch normalizations in ``model`` that use statistics of their batch in training mode, by name."""
    layers = model.named_sublayers(include_self=True)
    return {name: layer for name, layer in layers if isinstance(layer, _BATCH_NORMS) and not layer._use_global_stats}


def has_batch_norm(model: paddle.nn.Layer) -> bool:
    """Return whether a batch normalization in ``model`` uses statistics of its batch in training mode."""
    return bool(list_batch_norms(model))


def running_statistics(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """Return all tensors that a forward pass in training mode may change: running statistics and buffers, each once.

    Among this package's layers, only batch normalizations change theirs; the buffers of the others are constants
    (tables, masks, frozen normalizations). All buffers of any other layer are included, because they may change.
    """
    tensors: dict[int, paddle.Tensor] = {}
    for layer in model.sublayers(include_self=True):
        changing: list[paddle.Tensor] = []
        if isinstance(layer, _BATCH_NORMS):
            changing = [] if layer._use_global_stats else [layer._mean, layer._variance]
        elif not type(layer).__module__.startswith(_THIS_PACKAGE):
            changing = [buffer for buffer in layer._buffers.values() if buffer is not None]
        tensors.update({id(tensor): tensor for tensor in changing})
    return list(tensors.values())


def communicates_in_forward(model: paddle.nn.Layer) -> bool:
    """Return whether a layer of the model uses statistics of all ranks' rows."""
    return any(
        (isinstance(layer, paddle.nn.SyncBatchNorm) and world.world_size() > 1)
        or (isinstance(layer, DistributedBatchNorm) and layer.synchronized)
        for layer in list_batch_norms(model).values()
    )
