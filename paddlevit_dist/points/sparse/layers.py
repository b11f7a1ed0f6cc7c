"""Layers on sparse tensors: convolutions, normalization, activation, dropout, and the base class of networks.

``Convolution`` and ``TransposedConvolution`` have MinkowskiEngine's parameter names and shapes: ``kernel``
(K, C_in, C_out) for the K voxels of the kernel in the order of ``kernel_offsets``, (C_in, C_out) if K and the stride
are 1, and ``bias`` (1, C_out). ``StridedConv3D``, ``SubmanifoldConv3D`` and ``InverseConv3D`` have spconv's: ``weight``
(k, k, k, C_in, C_out).
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import paddle
from paddle import nn

from ...core.distributed import DistributedBatchNorm as SynchronizableBatchNorm
from ...core.distributed import build_zero
from ...core.runtime.autocast import add_bias, as_dtype, product_dtype
from ...core.tasks.model import Model
from .convolution import convolve
from .coordinate_keys import Steps, along_axes, unique_voxels
from .coordinate_levels import kernel_offsets
from .coordinate_plan import MapKey, PlanSpec
from .device_plan import KernelMap, Plan, preferred_block_rows
from .switching import check_momentum, resolve_arguments
from .tensor import SparseTensor, empty_rows, finer_stride, multiply_steps, parse_steps, require_kernels, require_sparse

Voxels: TypeAlias = SparseTensor | np.ndarray | paddle.Tensor  # a sparse tensor's, or integers (N, 1 + D)


class _SparseConvolution(nn.Layer):
    """Base class of convolutions onto coarser voxels, finer voxels of the plan, or the voxels given to ``forward``.

    The coarser voxels are ``floor(c / stride) * stride``. Subclasses create ``bias`` and the parameter that
    ``_matrices`` returns. The arguments are as for ``Convolution``.
    """

    bias: paddle.Tensor | None
    _transposed = False
    _fan_channels = "in"  # side whose channel number scales the initial values; "" for depthwise convolutions
    _order: list[int] | None = None  # number of each kernel offset's matrix

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Steps = 3,
        stride: Steps = 1,
        dilation: Steps = 1,
        bias: bool = False,
        dimension: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        resolve_arguments(self, kwargs)
        self.in_channels, self.out_channels, self.dimension = in_channels, out_channels, dimension
        self.kernel_size = parse_steps("kernel_size", kernel_size, dimension)
        self.stride, self.dilation = (
            parse_steps("stride", stride, dimension),
            parse_steps("dilation", dilation, dimension),
        )
        self.kernel_volume = math.prod(along_axes(self.kernel_size, dimension))
        self.is_pointwise = self.kernel_size == self.stride == 1
        self._create_parameters(bias)

    def _create_parameters(self, bias: bool) -> None:
        raise NotImplementedError

    def _uniform(self, shape: list[int]) -> paddle.Tensor:
        """Create a parameter with uniform initial values within 1 / sqrt(C K)."""
        channels = {"in": self.in_channels, "out": self.out_channels, "": 1}[self._fan_channels]
        bound = 1.0 / math.sqrt(channels * self.kernel_volume)
        return self.create_parameter(shape, default_initializer=nn.initializer.Uniform(-bound, bound))

    def _matrices(self) -> paddle.Tensor:
        """Return the matrices (K, C_in, C_out), or (C_in, C_out) for a pointwise convolution."""
        raise NotImplementedError

    def forward(self, x: SparseTensor, coordinates: Voxels | None = None) -> SparseTensor:
        """Return convolved features on ``coordinates``, see ``output_plan``; None: voxels that the input's give."""
        matrices = self._matrices()
        require(self, x, matrices, self.in_channels, self.dimension)
        if coordinates is None and self.is_pointwise:
            return x.with_features(self._finish(pointwise(x.features, matrices)))
        stride = (
            finer_stride(x, self.stride) if self._transposed else multiply_steps(x.stride, self.stride, x.dimension)
        )
        if coordinates is None:
            plan, fine, coarse = x.plan, *((stride, x.stride) if self._transposed else (x.stride, stride))
            kernel_map = plan.kernel_map(MapKey(fine, coarse, self.kernel_size, self.dilation))
        else:
            plan, stride = output_plan(coordinates, x, stride)
            kernel_map = self._map_onto(x, plan, stride)
        features = self._convolve(x.features, kernel_map, plan.rows(stride))
        return SparseTensor(self._finish(features), plan=plan, stride=stride)

    def _convolve(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        """Return (rows, C_out) before the bias."""
        matrices = self._matrices()
        matrices = matrices.unsqueeze(0) if self.is_pointwise else matrices
        return convolve(features, matrices, kernel_map, rows, transposed=self._transposed, weight_order=self._order)

    def _map_onto(self, x: SparseTensor, plan: Plan, stride: Steps) -> KernelMap:
        """Return the kernel map between the input and the level ``stride`` of a plan."""
        if self._transposed:
            return plan.map_to(stride, x.coordinates, self._offsets(stride))
        return x.plan.map_to(x.stride, plan.coordinates(stride), self._offsets(x.stride))

    def _offsets(self, fine: Steps) -> np.ndarray:
        """Return the kernel's offsets, int64 (K, D), in units of the coordinates."""
        offsets = kernel_offsets(self.kernel_size, self.dimension)
        return offsets * along_axes(self.dilation, self.dimension) * along_axes(fine, self.dimension)

    def _finish(self, features: paddle.Tensor) -> paddle.Tensor:
        if self.bias is None:
            return features
        return add_bias(features, self.bias) if features.shape[0] else empty_rows(features, self.bias)

    def extra_repr(self) -> str:
        """Return the arguments that ``print(layer)`` shows."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"dilation={self.dilation}, bias={self.bias is not None}, dimension={self.dimension}"
        )


def output_plan(coordinates: Voxels, x: SparseTensor, stride: Steps) -> tuple[Plan, Steps]:
    """Return the plan and the tensor stride of a layer's output voxels.

    ``coordinates`` is a sparse tensor, whose voxels are used, or integers (N, 1 + D), multiples of ``stride``.
    ValueError if the number of axes differs from the input's, or the coordinates are invalid (``CoordinatePlan``).
    """
    if isinstance(coordinates, SparseTensor):
        plan, stride = coordinates.plan, coordinates.stride
    else:
        plan = Plan.of_coordinates(coordinates, x.plan.num_scenes, stride)
    if plan.dimension != x.dimension:
        raise ValueError(f"the voxels given are {plan.dimension}-D, the input is {x}")
    return plan, stride


class Convolution(_SparseConvolution):
    """``out[u] = sum over k of in[u + offset_k] @ kernel[k]`` on the voxels ``floor(c / s) * s`` of the input's.

    With stride 1 the output has the input's voxels (a submanifold convolution: Graham et al., 2018, arXiv 1711.10275).

    Args:
        in_channels, out_channels: channels of the features.
        kernel_size: voxels along each axis, 1, 2, 3, 5 or any other; one number for each axis if they differ. This
            also applies to stride and dilation.
        stride: tensor stride of the output divided by that of the input.
        dilation: distance between kernel offsets in voxels of the finer side.
        bias: add a learned vector.
        dimension: spatial axes, 1 to 4.
        kwargs: arguments of MinkowskiEngine, spconv or torchsparse, see ``switching``.
    """

    def _create_parameters(self, bias: bool) -> None:
        matrix = [self.in_channels, self.out_channels]
        self.kernel = self._uniform(matrix if self.is_pointwise else [self.kernel_volume, *matrix])
        self.bias = self._uniform([1, self.out_channels]) if bias else None

    def _matrices(self) -> paddle.Tensor:
        return self.kernel


class TransposedConvolution(Convolution):
    """``out[u + offset_k] += in[u] @ kernel[k]``, back onto the finer voxels of the plan.

    With kernel 2 and stride 2 this is also spconv's inverse convolution of the strided one. The arguments are as for
    ``Convolution``, with the stride of the input divided by that of the output. ``forward`` raises ValueError if the
    input's tensor stride is not a multiple of ``stride``.
    """

    _transposed = True
    _fan_channels = "out"


class GenerativeConvolution(TransposedConvolution):
    """A transposed convolution that creates voxels wherever the kernel around an input voxel reaches.

    The output has a separate plan at the finer stride. MinkowskiEngine calls it
    ``MinkowskiGenerativeConvolutionTranspose``.
    """

    def forward(self, x: SparseTensor, coordinates: Voxels | None = None) -> SparseTensor:
        """Return the convolved features on all reachable voxels, or on ``coordinates`` if given."""
        if coordinates is None:
            require(self, x, self.kernel, self.in_channels, self.dimension)
            offsets = self._offsets(finer_stride(x, self.stride))
            offsets = np.pad(offsets, ((0, 0), (1, 0)))  # a new voxel is in the scene of its input voxel
            reachable = x.coordinates.astype(np.int64)[:, None] + offsets  # (N, K, 1 + D)
            coordinates, _ = unique_voxels(reachable.reshape(-1, 1 + x.dimension))
        return super().forward(x, coordinates)


def require(
    layer: nn.Layer, x: SparseTensor, parameter: paddle.Tensor, channels: int, dimension: int | None = None
) -> None:
    """Check that a layer can process a tensor; Paddle would fail far from the cause, or use only some matrices.

    ``parameter`` is one of the layer's, whose precision the features must have; ``dimension`` None: any. TypeError if
    ``x`` is not a sparse tensor; ValueError for other channels, another dimension, or float64 combined with another
    precision.
    """
    name = type(layer).__name__
    require_sparse(name, x, computes=False)
    require_kernels(name, parameter)
    if dimension not in (None, x.dimension):
        raise ValueError(f"this {name} is for {dimension}-D voxels, but gets {x}: give both the same dimension")
    if x.features.shape[1] != channels:
        raise ValueError(f"this {name} takes {channels} channels, but gets {x}")
    dtype = x.features.dtype
    if dtype != parameter.dtype and paddle.float64 in (dtype, parameter.dtype):
        raise ValueError(
            f"this {name} has parameters of {_format_dtype(parameter.dtype)}, but gets features of "
            f"{_format_dtype(dtype)}: convert the features with .astype('{_format_dtype(parameter.dtype)}')"
        )


def _format_dtype(dtype: paddle.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def pointwise(features: paddle.Tensor, matrix: paddle.Tensor) -> paddle.Tensor:
    """Return ``features @ matrix``, also for zero rows, which some kernels reject."""
    features = as_dtype(features, product_dtype() or matrix.dtype)
    return paddle.matmul(features, matrix) if features.shape[0] else empty_rows(features, matrix)


class RowsBatchNorm(SynchronizableBatchNorm):
    """Batch normalization of (rows, channels). ``momentum`` is the fraction of running statistics kept by each step.

    ``epsilon``, added to the variance, is also accepted as ``eps``.
    """

    def __init__(self, num_features: int, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs: Any) -> None:
        (epsilon,) = resolve_arguments(self, kwargs, eps=epsilon)
        super().__init__(num_features, check_momentum(momentum), epsilon)


class BatchNorm(RowsBatchNorm):
    """Batch normalization over the voxels; weights and statistics are direct members, as in spconv networks."""

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the normalized features (N, C)."""
        require(self, x, self.weight, self.weight.shape[0])
        require_kernels(type(self).__name__, x.features)
        return x.with_features(super().forward(x.features))


class NestedBatchNorm(nn.Layer):
    """Batch normalization over the voxels, with weights and statistics in a sublayer ``bn``, as in MinkowskiEngine."""

    def __init__(self, num_features: int, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__()
        self.bn = RowsBatchNorm(num_features, momentum, epsilon, **kwargs)

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the normalized features (N, C)."""
        require(self, x, self.bn.weight, self.bn.weight.shape[0])
        require_kernels(type(self).__name__, x.features)
        return x.with_features(self.bn(x.features))


class Pointwise(nn.Layer):
    """Any layer that treats rows independently: ``Pointwise(nn.GELU())``, ``Pointwise(nn.Linear(8, 16))``."""

    def __init__(self, layer: Callable[[paddle.Tensor], paddle.Tensor]) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Return the layer's output for the features (N, C), on the same voxels."""
        require_sparse(type(self).__name__, x)
        if x.features.shape[0]:
            return x.with_features(self.layer(x.features))
        # Most kernels reject zero rows. With one row of zeros, all parameters get zero gradients on this rank too.
        row = build_zero(x.features).astype(x.features.dtype).expand([1, x.features.shape[1]])
        return x.with_features(empty_rows(self.layer(row)))


class ReLU(Pointwise):
    """Rectified linear unit on every feature."""

    def __init__(self, **kwargs: Any) -> None:
        resolve_arguments(self, kwargs)
        super().__init__(nn.ReLU())


class Dropout(Pointwise):
    """Zeroes features with probability ``rate`` (or ``p``) during training and rescales the others to keep the mean."""

    def __init__(self, rate: float = 0.5, **kwargs: Any) -> None:
        (rate,) = resolve_arguments(self, kwargs, p=rate)
        super().__init__(nn.Dropout(rate))


class SparseNetwork(Model):
    """Base class of networks on sparse tensors: reports which tables of a plan it needs."""

    works_on = "points"

    def __init__(self, in_channels: int, dimension: int = 3) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.dimension = dimension
        self._specs: dict[str, PlanSpec] = {}

    def plan_spec(self) -> PlanSpec:
        """Return the ``PlanSpec`` for ``build_plan`` in the loader process."""
        return self.find_spec("whole", self, self.in_channels)

    def find_spec(self, name: str, part: Callable[[SparseTensor], Any], channels: int) -> PlanSpec:
        """Return the tables that a part of the network needs, recorded once by name in a forward pass of one voxel.

        ``part`` takes ``channels`` features.
        """
        if name not in self._specs:
            modes = [(module, module.training) for module in self.sublayers(include_self=True)]
            self.eval()
            with paddle.no_grad():
                dtype = self.parameters()[0].dtype
                voxel = np.zeros([1, 1 + self.dimension], np.int32)
                x = SparseTensor(paddle.zeros([1, channels], dtype=dtype), voxel)
                part(x)
            for layer, training in modes:
                layer.training = training
            self._specs[name] = x.plan.get_used_spec(preferred_block_rows())
        return self._specs[name]

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return no layers: the blocks have batch statistics and take sparse tensors, so none can be recomputed."""
        return []


class SpconvConvolution(_SparseConvolution):
    """A convolution with spconv's ``weight`` (k, ..., k, C_in, C_out) and ``bias`` (C_out,)."""

    def _create_parameters(self, bias: bool) -> None:
        sides = along_axes(self.kernel_size, self.dimension)
        self.weight = self._uniform([*sides, self.in_channels, self.out_channels])
        self.bias = self._uniform([self.out_channels]) if bias else None
        self._order = last_axis_fastest(self.kernel_size, self.dimension)

    def _matrices(self) -> paddle.Tensor:
        return self.weight.reshape([*([] if self.is_pointwise else [-1]), self.in_channels, self.out_channels])


class StridedConv3D(SpconvConvolution):
    """spconv's SparseConv3d if kernel size and stride are equal and there is no padding, as in PointGroup.

    The output has the voxels ``floor(c / stride) * stride``. For other kernels spconv creates a voxel wherever one is
    in reach, as ``PaddedConvolution`` does. The arguments are as for ``Convolution``.
    """


class SubmanifoldConv3D(SpconvConvolution):
    """Convolution that keeps the voxels; an odd kernel is centered. Arguments like ``Convolution``, without stride."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Steps = 3,
        dilation: Steps = 1,
        bias: bool = False,
        dimension: int = 3,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("padding", None)  # spconv accepts it and ignores it
        resolve_arguments(self, kwargs)
        super().__init__(in_channels, out_channels, kernel_size, 1, dilation, bias, dimension)


class InverseConv3D(StridedConv3D):
    """Back onto the finer voxels: ``fine[2 q + i] = coarse[q] @ weight[i]`` for kernel 2 and stride 2."""

    _transposed = True


def last_axis_fastest(kernel_size: Steps, dimension: int) -> list[int]:
    """Return for each offset of ``kernel_offsets`` its number if the last axis runs fastest."""
    sides = along_axes(kernel_size, dimension)
    places = kernel_offsets(kernel_size, dimension)
    return np.ravel_multi_index(tuple((places - places.min(axis=0)).T), sides).tolist()
