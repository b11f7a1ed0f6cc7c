"""Differentiable functions of decoders on maps (batch, height, width, channels), float32 in host memory.

Inputs are not checked: call these functions only if ``accelerate.can_use_fast_path`` allows it.
"""

import paddle
from paddle import nn
from paddle.autograd import PyLayer

from ...core.distributed import batch_norm
from ...core.distributed.collectives import all_reduce_sum
from . import batch_norm_kernels, transposed_kernels
from .functions import address, count_rows, differentiable, needs_gradients, select_gradients, with_graph
from .memory import PLAIN, TRANSPOSED, as_contiguous, empty, require_product


def _tiles(x) -> int:
    batch, height, width, _ = x.shape
    return batch * ((height + 1) // 2) * ((width + 1) // 2)


def _transposed_forward(x, weight):
    """Return the result of ``transposed``, and the planes and kernels that its gradient needs."""
    (batch, height, width, channels), out, tiles = x.shape, weight.shape[1], _tiles(x)
    planes, kernels = (
        empty(transposed_kernels.PLANES, tiles, channels),
        empty(transposed_kernels.KERNELS, channels, out),
    )
    products, result = empty(transposed_kernels.KERNELS, tiles, out), empty(batch, 2 * height, 2 * width, out)
    transposed_kernels.cut_tiles(address(x), address(planes), *x.shape)
    transposed_kernels.turn_weight(address(weight), address(kernels), channels, out)
    _multiply_planes(transposed_kernels.FORWARD, planes, kernels, products)
    transposed_kernels.join_results(address(products), address(result), batch, height, width, out)
    return result, planes, kernels


def _multiply_planes(kind: int, planes, kernels, products) -> None:
    sizes = planes.shape[1], planes.shape[2], products.shape[2]
    transposed_kernels.multiply_planes(
        require_product().pointer, kind, address(planes), address(kernels), address(products), *sizes
    )


class _TransposedFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.needs_gradient, ctx.shape = needs_gradients(x, weight), x.shape
        result, planes, kernels = _transposed_forward(x, weight)
        ctx.save_for_backward(planes, kernels)
        return result

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (planes, kernels), gradient = ctx.saved_tensor(), as_contiguous(gradient)
        (batch, height, width, channels), out = ctx.shape, gradient.shape[-1]
        products = empty(transposed_kernels.KERNELS, planes.shape[1], out)
        transposed_kernels.cut_results(address(gradient), address(products), batch, height, width, out)
        x_gradient = weight_gradient = None
        if ctx.needs_gradient[1]:
            weight_gradient, kernel_gradient = empty(channels, out, 4, 4), empty(*kernels.shape)
            _multiply_planes(transposed_kernels.BY_KERNELS, planes, kernel_gradient, products)
            transposed_kernels.turn_back(address(kernel_gradient), address(weight_gradient), channels, out)
        if ctx.needs_gradient[0]:
            x_gradient, plane_gradient = empty(*ctx.shape), empty(*planes.shape)
            _multiply_planes(transposed_kernels.BY_PLANES, plane_gradient, kernels, products)
            transposed_kernels.join_tiles(address(plane_gradient), address(x_gradient), *ctx.shape)
        return x_gradient, weight_gradient


def transposed(x, weight) -> paddle.Tensor:
    """Compute a transposed convolution of stride 2 and padding 1 without bias: (batch, 2 height, 2 width, out).

    ``x`` is (batch, height, width, channels), ``weight`` (channels, out, 4, 4).
    """
    x = as_contiguous(x)
    if paddle.is_grad_enabled():
        return differentiable(_TransposedFunction, x, weight)
    return _transposed_forward(x, weight)[0]


def fits_norm(layer: nn.Layer) -> bool:
    """Return whether ``normalized`` computes this batch norm: a running variance that moves divides by rows - 1."""
    is_plain = not layer._use_global_stats and getattr(layer, "_act", None) is None
    has_parameters = layer.weight is not None and layer.bias is not None
    return is_plain and has_parameters and (not layer.training or batch_norm.divides_by_all_but_one(layer))


class _NormalizedFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, layer):
        rows, width = count_rows(x), x.shape[-1]
        local = paddle.empty([1 + 2 * width], "float64")
        batch_norm_kernels.moments(address(x), address(local), rows, width)
        mean, variance, all_rows = batch_norm.combine_moments(layer, local)
        inverse = 1.0 / (variance + layer._epsilon).sqrt()
        ctx.needs_gradient, ctx.exchanges = needs_gradients(x, weight, bias), batch_norm.exchanges_statistics(layer)
        out = _apply(x, weight * inverse, bias - mean * weight * inverse)
        # Not the result itself, which would keep its own graph alive.
        ctx.save_for_backward(x, out.detach(), mean, inverse, weight, all_rows)
        return out

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (x, out, mean, inverse, weight, all_rows), gradient = ctx.saved_tensor(), as_contiguous(gradient)
        rows, width = count_rows(x), x.shape[-1]
        sums, inputs = (
            paddle.empty([2 * width], "float64"),
            [address(each) for each in (gradient, x, out, mean, inverse)],
        )
        batch_norm_kernels.gradient_sums(*inputs, address(sums), rows, width)
        bias_gradient, weight_gradient = sums.astype("float32").split(2)
        x_gradient = None
        if ctx.exchanges:
            all_reduce_sum(sums)
        if ctx.needs_gradient[0]:
            x_gradient = empty(*x.shape)
            factor, (plain, turned) = weight * inverse, (sums / all_rows).astype("float32").split(2)
            vectors = [address(each) for each in (factor, plain, turned, x_gradient)]
            batch_norm_kernels.input_gradient(*inputs, *vectors, rows, width)
        return select_gradients(ctx.needs_gradient, x_gradient, weight_gradient, bias_gradient)


def _apply(x, scale, shift) -> paddle.Tensor:
    out, (scale, shift) = empty(*x.shape), map(as_contiguous, (scale, shift))
    addresses = address(x), address(scale), address(shift), address(out)
    batch_norm_kernels.scale_and_cut(*addresses, count_rows(x), x.shape[-1])
    return out


def normalized(x, layer: nn.Layer) -> paddle.Tensor:
    """Compute the batch norm ``layer`` over the last axis, and a ReLU.

    In training the statistics come from the rows, of all ranks if the layer is synchronized, and the running
    statistics are updated. Without training there must be no gradients.
    """
    x = as_contiguous(x)
    if layer.training:
        return differentiable(_NormalizedFunction, x, layer.weight, layer.bias, layer)
    scale = layer.weight / (layer._variance + layer._epsilon).sqrt()
    return _apply(x, scale, layer.bias - layer._mean * scale)


def _pixels_forward(x, weight, bias) -> paddle.Tensor:
    (batch, height, width, channels), points = x.shape, weight.shape[0]
    out = bias.reshape([1, points, 1, 1]).expand([batch, points, height, width]).contiguous()
    product, size = require_product(), height * width
    for item in range(batch):
        rows, maps = address(x) + item * size * channels * 4, address(out) + item * size * points * 4
        product(address(weight), rows, maps, (points, size, channels), (PLAIN, TRANSPOSED), 1.0)
    return out


class _PixelsFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.needs_gradient = needs_gradients(x, weight, bias)
        ctx.save_for_backward(x, weight)
        return _pixels_forward(x, weight, bias)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (x, weight), gradient, product = ctx.saved_tensor(), as_contiguous(gradient), require_product()
        (batch, height, width, channels), points = x.shape, weight.shape[0]
        size, x_gradient, weight_gradient = height * width, empty(*x.shape), empty(*weight.shape)
        for item in range(batch):
            at, maps = item * size * channels * 4, address(gradient) + item * size * points * 4
            if ctx.needs_gradient[0]:
                sizes = size, channels, points
                product(maps, address(weight), address(x_gradient) + at, sizes, (TRANSPOSED, PLAIN))
            beta = 1.0 if item else 0.0
            product(maps, address(x) + at, address(weight_gradient), (points, channels, size), beta=beta)
        return select_gradients(ctx.needs_gradient, x_gradient, weight_gradient, gradient.sum([0, 2, 3]))


def pixels(x, weight, bias) -> paddle.Tensor:
    """Compute a convolution of 1 x 1, from (batch, height, width, channels) to (batch, points, height, width).

    ``weight`` is (points, channels, 1, 1), ``bias`` (points,).
    """
    x = as_contiguous(x)
    if paddle.is_grad_enabled():
        return differentiable(_PixelsFunction, x, weight, bias)
    return _pixels_forward(x, weight, bias)
