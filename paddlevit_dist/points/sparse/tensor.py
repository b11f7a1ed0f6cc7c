"""Features on voxels: sparse tensors, and voxel-wise operations on several of them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayerContext

from ...core.distributed import build_zero
from ...core.runtime.autocast import as_dtype, product_dtype
from ...core.runtime.transfers import to_device
from .coordinate_keys import Steps, along_axes, simplify_steps, unique_voxels
from .device_plan import Plan


class FeatureOutput:
    """Base of objects whose ``features`` are the output tensor that ``paddle.DataParallel`` looks for.

    It searches only lists, tuples and dictionaries. If it finds no output, it takes all parameters for unused, and the
    first backward pass fails. It learns of this class when the first object is made.
    """

    features: paddle.Tensor

    def __new__(cls, *args: Any, **options: Any) -> "FeatureOutput":
        """Make an object, and let Paddle know the class."""
        _find_features_in_outputs()
        return super().__new__(cls)


@functools.cache
def _find_features_in_outputs() -> None:
    before = paddle.DataParallel._find_tensor

    def find(self: paddle.DataParallel, outputs: object) -> Any:
        return [outputs.features] if isinstance(outputs, FeatureOutput) else before(self, outputs)

    paddle.DataParallel._find_tensor = find


class SparseTensor(FeatureOutput):
    """Features of the voxels of one level.

    ``+``, ``-``, ``*`` and ``/`` take another sparse tensor, a number, or a tensor with one row or one row for each
    voxel. If the other sparse tensor has different voxels, the result has the voxels of either, and missing features
    count as zeros; the divisor of ``/`` must have the same voxels.

    Args:
        features: floating (N, C), rows in the order of the coordinates; a tensor, or an array to be converted to one.
        coordinates: whole numbers (N, 1 + D), integers or floating, array or tensor, scene number in column 0, D from
            1 to 4, no duplicates, multiples of ``stride``: the plan is built from them lazily in this process, and they
            are its finest voxels. Omit if ``plan`` is given.
        plan: from ``Plan.of_batch``.
        stride: tensor stride of the level, the distance between neighboring voxels; one number for each axis if they
            differ.
        num_scenes: with ``coordinates``, scenes of the batch if the last ones may be empty.

    Raises:
        ValueError: neither or both of coordinates and plan, a number of rows that differs from the level's, or
            invalid coordinates (``CoordinatePlan``).
        UserError: the coordinates are not whole, or too far apart for a 63-bit key.
    """

    def __init__(
        self,
        features: paddle.Tensor | np.ndarray,
        coordinates: paddle.Tensor | np.ndarray | None = None,
        *,
        plan: Plan | None = None,
        stride: Steps = 1,
        num_scenes: int | None = None,
    ) -> None:
        if (coordinates is None) == (plan is None):
            raise ValueError("a SparseTensor takes either coordinates or a plan")
        axes = np.shape(coordinates)[1] - 1 if np.ndim(coordinates) == 2 else None
        self.stride = parse_steps("stride", stride, axes if plan is None else plan.dimension)
        self.plan = Plan.of_coordinates(coordinates, num_scenes, self.stride) if plan is None else plan
        self.features = features if isinstance(features, paddle.Tensor) else to_device(np.asarray(features))
        if self.features.ndim != 2 or self.features.shape[0] != self.plan.rows(self.stride):
            raise ValueError(
                f"features have shape {list(self.features.shape)}, expected ({self.plan.rows(self.stride)}, channels) "
                f"for the voxels of stride {self.stride}"
            )

    @property
    def dimension(self) -> int:
        """Number of spatial axes, 1 to 4."""
        return self.plan.dimension

    @property
    def coordinates(self) -> np.ndarray:
        """int32 (N, 1 + D), if the plan was created from coordinates in this process."""
        return self.plan.coordinates(self.stride)

    __array_ufunc__ = None  # numpy leaves ``array + x`` to ``__radd__``

    # MinkowskiEngine's names of the three properties.
    F = property(lambda self: self.features)
    C = property(lambda self: self.coordinates)
    D = property(lambda self: self.dimension)

    def with_features(self, features: paddle.Tensor) -> "SparseTensor":
        """Return a sparse tensor with other features on the same voxels."""
        return SparseTensor(features, plan=self.plan, stride=self.stride)

    def slice(self, inverse: paddle.Tensor) -> paddle.Tensor:
        """Return (P, C): the features of each point's voxel, ``inverse``, int (P,), from ``sparse_quantize``."""
        if self.stride != 1:
            raise ValueError(f"only voxels of stride 1 can be sliced to points, these have stride {self.stride}")
        return paddle.gather(self.features, inverse) if inverse.shape[0] else empty_rows(self.features)

    def scene_rows(self) -> list[np.ndarray]:
        """Return the rows of each scene, int64 (rows,), in ascending order."""
        scenes = self.coordinates[:, 0]
        order = np.argsort(scenes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(scenes, minlength=self.plan.num_scenes))[:-1])

    @property
    def decomposed_coordinates(self) -> list[np.ndarray]:
        """Coordinates of each scene, int32 (rows, D), without the scene number."""
        return [self.coordinates[rows, 1:] for rows in self.scene_rows()]

    @property
    def decomposed_features(self) -> list[paddle.Tensor]:
        """Features of each scene, (rows, C)."""
        return [gather_rows(self.features, rows) for rows in self.scene_rows()]

    @property
    def decomposed_coordinates_and_features(self) -> tuple[list[np.ndarray], list[paddle.Tensor]]:
        """``decomposed_coordinates`` and ``decomposed_features``."""
        return self.decomposed_coordinates, self.decomposed_features

    def coordinates_at(self, batch_index: int) -> np.ndarray:
        """Return the coordinates of one scene, int32 (rows, D), without the scene number."""
        return self.coordinates[self._find_rows(batch_index), 1:]

    def features_at(self, batch_index: int) -> paddle.Tensor:
        """Return the features of one scene, (rows, C)."""
        return gather_rows(self.features, self._find_rows(batch_index))

    def _find_rows(self, scene: int) -> np.ndarray:
        if not 0 <= scene < self.plan.num_scenes:
            raise ValueError(f"batch_index is {scene}, expected 0 to {self.plan.num_scenes - 1}")
        return np.flatnonzero(self.coordinates[:, 0] == scene)

    def __add__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        return _combine(paddle.add, self, other)

    def __sub__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        return _combine(paddle.subtract, self, other)

    def __mul__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        return _combine(paddle.multiply, self, other)

    def __truediv__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        if isinstance(other, SparseTensor) and not on_same_voxels(self, other):
            raise ValueError(f"{other} does not have the voxels of {self}: divide by a tensor on the same voxels")
        return _combine(paddle.divide, self, other)

    def __rtruediv__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        return _combine(lambda features, dividend: paddle.divide(dividend, features), self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "SparseTensor":
        return self.with_features(-self.features)

    def __rsub__(self, other: "SparseTensor | paddle.Tensor | float") -> "SparseTensor":
        return -self + other

    def __repr__(self) -> str:
        rows, channels = self.features.shape
        return f"SparseTensor({rows} voxels, {channels} channels, stride {self.stride}, {self.dimension}-D)"


def _combine(
    operation: Callable[..., paddle.Tensor], x: SparseTensor, other: SparseTensor | paddle.Tensor | float
) -> SparseTensor:
    require_sparse("arithmetic", x)
    if not isinstance(other, SparseTensor):
        if not isinstance(other, paddle.Tensor):
            other = to_device(np.asarray(other)).astype(x.features.dtype)
        return x.with_features(_on_rows(operation)(x.features, other))
    if not on_same_voxels(x, other):
        x, other = on_all_voxels(x, other)
    return x.with_features(_on_rows(operation)(x.features, other.features))


def _on_rows(operation: Callable[..., paddle.Tensor]) -> Callable[..., paddle.Tensor]:
    """Return the operation extended to tensors without rows."""
    return lambda x, other: operation(x, other) if x.shape[0] else empty_rows(other, x)


def union(*tensors: SparseTensor) -> SparseTensor:
    """Return the sum of sparse tensors, on the voxels that any of them has.

    TypeError if an argument is not a sparse tensor; ValueError for no argument, or different strides or dimensions.
    """
    return _sum_on_all(tensors)[0]


def intersection(*tensors: SparseTensor) -> SparseTensor:
    """Return the sum of sparse tensors, on the voxels that all of them have.

    TypeError if an argument is not a sparse tensor; ValueError for no argument, or different strides or dimensions.
    """
    total, rows = _sum_on_all(tensors)
    number = np.zeros(total.features.shape[0], np.int64)
    for present in rows:
        number[present] += 1
    return prune(total, number == len(tensors))


def on_all_voxels(*tensors: SparseTensor) -> list[SparseTensor]:
    """Return each sparse tensor on the voxels of all, zeros where it had none; raise the errors of ``union``."""
    plan, rows = _merge_plans(tensors)
    number = plan.rows(tensors[0].stride)
    return [
        SparseTensor(scatter_rows(tensor.features, positions, number), plan=plan, stride=tensor.stride)
        for tensor, positions in zip(tensors, rows)
    ]


def _sum_on_all(tensors: Sequence[SparseTensor]) -> tuple[SparseTensor, list[np.ndarray]]:
    """Return the sum on the voxels of all, and the rows of each tensor's voxels in it, int64 (rows,)."""
    plan, rows = _merge_plans(tensors)
    first, *others = in_one_precision([tensor.features for tensor in tensors])
    total = scatter_rows(first, rows[0], plan.rows(tensors[0].stride))
    for features, positions in zip(others, rows[1:]):
        total = scatter_rows(features, positions, total.shape[0], total)
    return SparseTensor(total, plan=plan, stride=tensors[0].stride), rows


def _merge_plans(tensors: Sequence[SparseTensor]) -> tuple[Plan, list[np.ndarray]]:
    """Return the plan of all voxels, and the rows of each tensor's voxels in it, int64 (rows,)."""
    _require_any(tensors)
    first = tensors[0]
    for tensor in tensors:
        require_sparse("union, intersection, or arithmetic on different voxels,", tensor)
        if (tensor.stride, tensor.dimension) != (first.stride, first.dimension):
            raise ValueError(f"{first} and {tensor} have different strides or dimensions: they share no voxels")
    parts = [each.coordinates for each in tensors]
    coordinates, inverse = unique_voxels(np.concatenate(parts))
    num_scenes = max(each.plan.num_scenes for each in tensors)
    plan = Plan.of_coordinates(coordinates, num_scenes, first.stride)
    return plan, np.split(inverse, np.cumsum([len(part) for part in parts])[:-1])


def prune(x: SparseTensor, keep: paddle.Tensor | np.ndarray) -> SparseTensor:
    """Return the voxels selected by bool (N,), array or tensor, which a GPU synchronizes, as a separate plan.

    ValueError for a wrong shape or dtype.
    """
    mask = np.asarray(keep)
    if mask.dtype != np.bool_ or mask.shape != (x.features.shape[0],):
        raise ValueError(f"keep is {mask.dtype} of shape {mask.shape}, expected bool ({x.features.shape[0]},)")
    rows = np.flatnonzero(mask)
    plan = Plan.of_coordinates(x.coordinates[rows], x.plan.num_scenes, x.stride)
    return SparseTensor(gather_rows(x.features, rows), plan=plan, stride=x.stride)


def gather_rows(features: paddle.Tensor, rows: np.ndarray) -> paddle.Tensor:
    """Return the given rows, (rows, C); ``rows`` may be empty."""
    return paddle.gather(features, to_device(rows)) if len(rows) else empty_rows(features)


def empty_rows(*tensors: paddle.Tensor, channels: int | None = None) -> paddle.Tensor:
    """Return a tensor without rows, with zero gradients for all ``tensors`` and the last one's channels by default.

    Some of Paddle's kernels reject zero rows, such as a matrix product or the sum with a row.
    """
    return _EmptyRows.apply(tensors[-1].shape[-1] if channels is None else channels, *tensors)


class _EmptyRows(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: PyLayerContext, channels: int, *tensors: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(*tensors)
        return paddle.zeros([0, channels], dtype=tensors[0].dtype)

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        saved = ctx.saved_tensor()
        return tuple(
            None if tensor.stop_gradient else paddle.zeros(tensor.shape, dtype=tensor.dtype) for tensor in saved
        )


def scatter_rows(
    features: paddle.Tensor, rows: np.ndarray, number: int, total: paddle.Tensor | None = None
) -> paddle.Tensor:
    """Return (number, C): ``total`` (None: zeros) with the features (N, C) added at rows int64 (N,)."""
    if not number:
        return features if total is None else empty_rows(total, features)
    total = paddle.zeros([number, features.shape[1]], dtype=features.dtype) if total is None else total
    if not features.shape[0]:
        return total + build_zero(features).astype(total.dtype)
    return paddle.scatter_nd_add(total, to_device(rows[:, None]), features)


def parse_steps(name: str, value: Any, dimension: int | None = None, minimum: int = 1) -> Steps:
    """Check a stride, kernel size or dilation: an integer from ``minimum`` on, or one for each axis; else ValueError.

    ``dimension`` is the number of axes; None: not known yet.
    """
    is_one = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    numbers = [value] if is_one else value
    is_sequence = isinstance(numbers, (tuple, list, np.ndarray)) and len(numbers) > 0
    if not is_sequence or any(not isinstance(number, (int, np.integer)) or number < minimum for number in numbers):
        raise ValueError(f"{name} is {value!r}, expected a whole number from {minimum}, or one for each axis")
    if not is_one and dimension not in (None, len(numbers)):
        raise ValueError(f"{name} is {value!r}, expected a whole number from {minimum}, or {dimension} of them")
    return simplify_steps([int(number) for number in numbers])


def multiply_steps(stride: Steps, factor: Steps, dimension: int) -> Steps:
    """Return the tensor stride multiplied by ``factor`` along each axis."""
    both = zip(along_axes(stride, dimension), along_axes(factor, dimension))
    return simplify_steps([step * times for step, times in both])


def finer_stride(x: SparseTensor, stride: Steps) -> Steps:
    """Return the tensor stride after upsampling by ``stride``; ValueError if ``x`` has no multiple of it."""
    both = list(zip(along_axes(x.stride, x.dimension), along_axes(stride, x.dimension)))
    if any(step % divisor for step, divisor in both):
        raise ValueError(f"cannot go from voxels of stride {x.stride} to voxels {stride} times as fine: {x}")
    return simplify_steps([step // divisor for step, divisor in both])


def cat(*tensors: SparseTensor) -> SparseTensor:
    """Concatenate the channels of sparse tensors on the same voxels.

    ValueError for no argument, or tensors on different voxels; TypeError if one is not a sparse tensor, such as a list.
    """
    _require_any(tensors)
    for tensor in tensors:
        require_sparse("cat", tensor, computes=False)
    for other in tensors[1:]:
        if not on_same_voxels(tensors[0], other):
            raise ValueError(f"{tensors[0]} and {other} have different voxels: pass both to on_all_voxels first")
    return tensors[0].with_features(concat_channels(*(each.features for each in tensors)))


def concat_channels(*features: paddle.Tensor) -> paddle.Tensor:
    """Return (N, C_1 + C_2 + ...) from (N, C_1), (N, C_2), ..., in one precision."""
    return paddle.concat(in_one_precision(features), axis=1)


def in_one_precision(features: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
    """Return the features in float32 if some are in float32 and others in half precision, else unchanged.

    Under mixed precision, normalized features and Paddle's sums are in float32; concatenation and scattering reject
    mixed dtypes.
    """
    dtypes = {tensor.dtype for tensor in features}
    has_single = paddle.float32 in dtypes and paddle.float64 not in dtypes
    return [as_dtype(tensor, paddle.float32) if has_single else tensor for tensor in features]


def on_same_voxels(x: SparseTensor, other: SparseTensor) -> bool:
    """Return True if the rows of both are the same voxels in the same order."""
    if x.plan is other.plan:
        return x.stride == other.stride
    if x.stride != other.stride or x.features.shape[0] != other.features.shape[0]:
        return False
    return x.plan.has_coordinates and other.plan.has_coordinates and np.array_equal(x.coordinates, other.coordinates)


def _require_any(tensors: Sequence[SparseTensor]) -> None:
    if not tensors:
        raise ValueError("expected at least one sparse tensor")


def require_sparse(operation: str, x: object, computes: bool = True) -> None:
    """Check that ``x`` is a sparse tensor, else TypeError; if the operation ``computes``, also ``require_kernels``."""
    if not isinstance(x, SparseTensor):
        raise TypeError(f"{operation} takes a SparseTensor, not a {type(x).__name__}")
    if computes:
        require_kernels(operation, x.features)


def require_kernels(operation: str, *tensors: paddle.Tensor) -> None:
    """Reject half precision on a CPU outside of autocast, where Paddle has few kernels for it, with a ValueError."""
    for tensor in tensors if product_dtype() is None else ():
        if tensor.dtype in (paddle.float16, paddle.bfloat16) and tensor.place.is_cpu_place():
            name = str(tensor.dtype).rpartition(".")[2]
            raise ValueError(f"{operation} in {name} needs a GPU: on a CPU convert features and layers to float32")
