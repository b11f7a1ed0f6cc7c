"""Features on voxels: sparse tensors, and what is computed voxel by voxel from several of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ...distributed import build_zero
from ...runtime import paddle_versions
from ...runtime.autocast import as_dtype, product_dtype
from ...runtime.transfers import to_device
from .coordinate_keys import Steps, along_axes, distinct, plainest
from .device_plan import Plan


class SparseTensor:
    """Features of the voxels of one level.

    ``+``, ``-``, ``*`` and ``/`` take another sparse tensor, a number, or a tensor of one row, or of one for each
    voxel. On other voxels than this one's, the result is on the voxels of either, and a tensor is zero where it has
    none; so ``/`` takes no divisor on other voxels.

    Args:
        features: floating (N, C), rows in the order of the coordinates; a tensor, or an array to be converted to one.
        coordinates: integers (N, 1 + D), array or tensor, scene number in column 0, D from 1 to 4, no duplicates,
            multiples of ``stride``: the plan is built from them lazily in this process, and they are its finest
            voxels. Omit if ``plan`` is given.
        plan: from ``Plan.of_batch``.
        stride: tensor stride of the level, the distance between neighboring voxels; one number for each axis where
            they differ.
        num_scenes: with ``coordinates``, scenes of the batch if the last ones may be empty.

    Raises:
        ValueError: neither or both of coordinates and plan, a number of rows that differs from the level's, or
            coordinates as for ``CoordinatePlan``.
        UserError: coordinates that lie too far apart.
    """

    def __init__(
        self,
        features: Any,
        coordinates: Any = None,
        *,
        plan: Plan | None = None,
        stride: Steps = 1,
        num_scenes: int | None = None,
    ) -> None:
        if (coordinates is None) == (plan is None):
            raise ValueError("a SparseTensor takes either coordinates or a plan")
        axes = np.shape(coordinates)[-1] - 1 if plan is None and np.ndim(coordinates) == 2 else None
        self.stride = whole("stride", stride, axes if plan is None else plan.dimension)
        self.plan = Plan.of_coordinates(coordinates, num_scenes, self.stride) if plan is None else plan
        self.features = features if isinstance(features, paddle.Tensor) else to_device(np.asarray(features))
        if self.features.ndim != 2 or self.features.shape[0] != self.plan.rows(self.stride):
            raise ValueError(
                f"features have shape {list(self.features.shape)}, expected ({self.plan.rows(self.stride)}, channels) "
                f"for the voxels of stride {self.stride}"
            )

    @property
    def dimension(self) -> int:
        """Spatial axes, 1 to 4."""
        return self.plan.dimension

    @property
    def coordinates(self) -> np.ndarray:
        """int32 (N, 1 + D), if the plan was created from coordinates in this process."""
        return self.plan.coordinates(self.stride)

    __array_ufunc__ = None  # numpy leaves ``array + x`` to ``__radd__``

    # MinkowskiEngine's names of the three.
    F = property(lambda self: self.features)
    C = property(lambda self: self.coordinates)
    D = property(lambda self: self.dimension)

    def with_features(self, features: paddle.Tensor) -> "SparseTensor":
        """Other features on the same voxels."""
        return SparseTensor(features, plan=self.plan, stride=self.stride)

    def slice(self, inverse: paddle.Tensor) -> paddle.Tensor:
        """Features of the points (P, C): each point takes those of its voxel.

        Args:
            inverse: int64 or int32 (P,), the voxel row of each point, as ``sparse_quantize`` returns it.
        """
        if self.stride != 1:
            raise ValueError(f"only voxels of stride 1 can be sliced to points, these have stride {self.stride}")
        return paddle.gather(self.features, inverse) if inverse.shape[0] else no_rows(self.features)

    def rows_of_scenes(self) -> list[np.ndarray]:
        """The rows of each scene, int64 (rows,), in ascending order."""
        scenes = self.coordinates[:, 0]
        order = np.argsort(scenes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(scenes, minlength=self.plan.num_scenes))[:-1])

    @property
    def decomposed_coordinates(self) -> list[np.ndarray]:
        """Of each scene int32 (rows, D), without its number."""
        return [self.coordinates[rows, 1:] for rows in self.rows_of_scenes()]

    @property
    def decomposed_features(self) -> list[paddle.Tensor]:
        """Of each scene (rows, C)."""
        return [take_rows(self.features, rows) for rows in self.rows_of_scenes()]

    @property
    def decomposed_coordinates_and_features(self) -> tuple[list[np.ndarray], list[paddle.Tensor]]:
        """Both lists."""
        return self.decomposed_coordinates, self.decomposed_features

    def coordinates_at(self, batch_index: int) -> np.ndarray:
        """Of one scene int32 (rows, D), without its number."""
        return self.coordinates[self._find_rows(batch_index), 1:]

    def features_at(self, batch_index: int) -> paddle.Tensor:
        """Of one scene (rows, C)."""
        return take_rows(self.features, self._find_rows(batch_index))

    def _find_rows(self, scene: int) -> np.ndarray:
        if not 0 <= scene < self.plan.num_scenes:
            raise ValueError(f"scene {scene} of {self.plan.num_scenes}, which are counted from 0")
        return np.flatnonzero(self.coordinates[:, 0] == scene)

    def __add__(self, other: Any) -> "SparseTensor":
        return _combine(paddle.add, self, other)

    def __sub__(self, other: Any) -> "SparseTensor":
        return _combine(paddle.subtract, self, other)

    def __mul__(self, other: Any) -> "SparseTensor":
        return _combine(paddle.multiply, self, other)

    def __truediv__(self, other: Any) -> "SparseTensor":
        if isinstance(other, SparseTensor) and not on_same_voxels(self, other):
            raise ValueError(f"{other} has not the voxels of {self}: what is divided by nothing is no number")
        return _combine(paddle.divide, self, other)

    def __rtruediv__(self, other: Any) -> "SparseTensor":
        return _combine(lambda features, divided: paddle.divide(divided, features), self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "SparseTensor":
        return self.with_features(-self.features)

    def __rsub__(self, other: Any) -> "SparseTensor":
        return -self + other

    def __repr__(self) -> str:
        rows, channels = self.features.shape
        return f"SparseTensor({rows} voxels, {channels} channels, stride {self.stride}, {self.dimension}-D)"


paddle_versions.find_outputs_in(SparseTensor, "features")


def _combine(operation: Callable[..., paddle.Tensor], one: SparseTensor, other: Any) -> SparseTensor:
    require_sparse("arithmetic", one)
    if not isinstance(other, SparseTensor):
        if not isinstance(other, paddle.Tensor):
            other = to_device(np.asarray(other)).astype(one.features.dtype)
        return one.with_features(_on_rows(operation)(one.features, other))
    if not on_same_voxels(one, other):
        one, other = on_all_voxels(one, other)
    return one.with_features(_on_rows(operation)(one.features, other.features))


def _on_rows(operation: Callable[..., paddle.Tensor]) -> Callable[..., paddle.Tensor]:
    """The same operation, which also takes no rows."""
    return lambda one, other: operation(one, other) if one.shape[0] else no_rows(other, one)


def union(*tensors: SparseTensor) -> SparseTensor:
    """The sum of sparse tensors, on the voxels that any of them has.

    Raises:
        TypeError, ValueError: as ``on_all_voxels``.
    """
    return _sum_on_all(tensors)[0]


def intersection(*tensors: SparseTensor) -> SparseTensor:
    """The sum of sparse tensors, on the voxels that all of them have.

    Raises:
        TypeError, ValueError: as ``on_all_voxels``.
    """
    total, rows = _sum_on_all(tensors)
    number = np.zeros(total.features.shape[0], np.int64)
    for own in rows:
        number[own] += 1
    return prune(total, number == len(tensors))


def on_all_voxels(*tensors: SparseTensor) -> list[SparseTensor]:
    """The same sparse tensors on the voxels of all of them, with zeros on those that one does not have.

    Raises:
        TypeError: something else.
        ValueError: none, or they differ in stride or dimension.
    """
    plan, rows = _plan_of_all(tensors)
    number = plan.rows(tensors[0].stride)
    return [
        SparseTensor(put_rows(tensor.features, own, number), plan=plan, stride=tensor.stride)
        for tensor, own in zip(tensors, rows)
    ]


def _sum_on_all(tensors: Sequence[SparseTensor]) -> tuple[SparseTensor, list[np.ndarray]]:
    """The sum on the voxels of all; and the row there of each of a tensor's, int64 (rows,)."""
    plan, rows = _plan_of_all(tensors)
    first, *others = in_one_precision([tensor.features for tensor in tensors])
    total = put_rows(first, rows[0], plan.rows(tensors[0].stride))
    for features, own in zip(others, rows[1:]):
        total = put_rows(features, own, total.shape[0], total)
    return SparseTensor(total, plan=plan, stride=tensors[0].stride), rows


def _plan_of_all(tensors: Sequence[SparseTensor]) -> tuple[Plan, list[np.ndarray]]:
    """The plan of all voxels; and the row there of each of a tensor's, int64 (rows,)."""
    _require_some(tensors)
    first = tensors[0]
    for tensor in tensors:
        require_sparse("union, intersection, or arithmetic on different voxels,", tensor)
        if (tensor.stride, tensor.dimension) != (first.stride, first.dimension):
            raise ValueError(f"{first} and {tensor} have different strides or dimensions: no voxel is of both")
    parts = [tensor.coordinates for tensor in tensors]
    coordinates, inverse = distinct(np.concatenate(parts))
    num_scenes = max(tensor.plan.num_scenes for tensor in tensors)
    plan = Plan.of_coordinates(coordinates, num_scenes, first.stride)
    return plan, np.split(inverse, np.cumsum([len(part) for part in parts])[:-1])


def prune(x: SparseTensor, keep: Any) -> SparseTensor:
    """The voxels that are chosen, on a plan of their own.

    Args:
        keep: bool (N,), array or tensor; a tensor on a GPU is waited for.

    Raises:
        ValueError: of another shape or dtype.
    """
    chosen = np.asarray(keep)
    if chosen.dtype != np.bool_ or chosen.shape != (x.features.shape[0],):
        raise ValueError(f"keep is {chosen.dtype} of shape {chosen.shape}, expected bool ({x.features.shape[0]},)")
    rows = np.flatnonzero(chosen)
    plan = Plan.of_coordinates(x.coordinates[rows], x.plan.num_scenes, x.stride)
    return SparseTensor(take_rows(x.features, rows), plan=plan, stride=x.stride)


def take_rows(features: paddle.Tensor, rows: np.ndarray) -> paddle.Tensor:
    """Some of the rows, (rows, C), also none."""
    return paddle.gather(features, to_device(rows)) if len(rows) else no_rows(features)


def no_rows(*tensors: paddle.Tensor, channels: int | None = None) -> paddle.Tensor:
    """No row of so many channels, by default of the last tensor's, with gradients of zeros for all tensors: for what
    some kernels of Paddle reject, the product of zero rows with a matrix, or their sum with a row."""
    return _NoRows.apply(tensors[-1].shape[-1] if channels is None else channels, *tensors)


class _NoRows(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, channels: int, *tensors: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(*tensors)
        return paddle.zeros([0, channels], dtype=tensors[0].dtype)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        saved = ctx.saved_tensor()
        return tuple(None if one.stop_gradient else paddle.zeros(one.shape, dtype=one.dtype) for one in saved)


def put_rows(
    features: paddle.Tensor, rows: np.ndarray, number: int, total: paddle.Tensor | None = None
) -> paddle.Tensor:
    """(number, C): the features (N, C) added to rows int64 (N,) of ``total``; None: of zeros."""
    if not number:
        return features if total is None else no_rows(total, features)
    total = paddle.zeros([number, features.shape[1]], dtype=features.dtype) if total is None else total
    if not features.shape[0]:
        return total + build_zero(features).astype(total.dtype)
    return paddle.scatter_nd_add(total, to_device(rows[:, None]), features)


def whole(name: str, value: Any, dimension: int | None = None, least: int = 1) -> Steps:
    """A stride, kernel size or dilation: a whole number from ``least``, or one for each axis.

    Args:
        dimension: number of axes; None: not known yet.

    Raises:
        ValueError: it is something else.
    """
    is_one = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    numbers = [value] if is_one else value
    is_sequence = isinstance(numbers, (tuple, list, np.ndarray)) and len(numbers) > 0
    if not is_sequence or any(not isinstance(one, (int, np.integer)) or one < least for one in numbers):
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least}, or one for each axis")
    if not is_one and dimension not in (None, len(numbers)):
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least}, or {dimension} of them")
    return plainest([int(one) for one in numbers])


def times(stride: Steps, factor: Steps, dimension: int) -> Steps:
    """The tensor stride that is ``factor`` times as coarse."""
    both = zip(along_axes(stride, dimension), along_axes(factor, dimension))
    return plainest([one * other for one, other in both])


def finer_stride(x: SparseTensor, stride: Steps) -> Steps:
    """Tensor stride after upsampling by ``stride``.

    Raises:
        ValueError: the input's is no multiple of it.
    """
    both = list(zip(along_axes(x.stride, x.dimension), along_axes(stride, x.dimension)))
    if any(own % one for own, one in both):
        raise ValueError(f"cannot go from voxels of stride {x.stride} to voxels {stride} times as fine: {x}")
    return plainest([own // one for own, one in both])


def cat(*tensors: SparseTensor) -> SparseTensor:
    """Concatenate the channels of sparse tensors on the same voxels.

    Raises:
        ValueError: tensors on different voxels, or none.
        TypeError: something else, such as a list of them.
    """
    _require_some(tensors)
    for tensor in tensors:
        require_sparse("cat", tensor, computes=False)
    for other in tensors[1:]:
        if not on_same_voxels(tensors[0], other):
            raise ValueError(f"{tensors[0]} and {other} do not lie on the same voxels: on_all_voxels brings them there")
    return tensors[0].with_features(side_by_side(*(tensor.features for tensor in tensors)))


def side_by_side(*features: paddle.Tensor) -> paddle.Tensor:
    """(N, C_1 + C_2 + ...) from (N, C_1), (N, C_2), ..., in one precision."""
    return paddle.concat(in_one_precision(features), axis=1)


def in_one_precision(features: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
    """In float32 if one is and others are in half precision, as what has been normalized is under mixed precision, and
    as Paddle's sums are; concatenation and scattering refuse both together."""
    dtypes = {one.dtype for one in features}
    has_single = paddle.float32 in dtypes and paddle.float64 not in dtypes
    return [as_dtype(one, paddle.float32) if has_single else one for one in features]


def on_same_voxels(one: SparseTensor, other: SparseTensor) -> bool:
    """Whether their rows are of the same voxels in the same order."""
    if one.plan is other.plan:
        return one.stride == other.stride
    if one.stride != other.stride or one.features.shape[0] != other.features.shape[0]:
        return False
    return (
        one.plan.has_coordinates and other.plan.has_coordinates and np.array_equal(one.coordinates, other.coordinates)
    )


def _require_some(tensors: Sequence[SparseTensor]) -> None:
    if not tensors:
        raise ValueError("expected one sparse tensor at least")


def require_sparse(taker: str, x: Any, computes: bool = True) -> None:
    """Refuse what is no sparse tensor; and where it ``computes`` with the features, what ``require_kernels`` does.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if not isinstance(x, SparseTensor):
        raise TypeError(f"{taker} takes a SparseTensor, not a {type(x).__name__}")
    if computes:
        require_kernels(taker, x.features)


def require_kernels(taker: str, *tensors: paddle.Tensor) -> None:
    """Refuse half precision in the host's memory, for which Paddle has few kernels, where nobody casts (autocast).

    Raises:
        ValueError: one is.
    """
    for tensor in tensors if product_dtype() is None else ():
        if tensor.dtype in (paddle.float16, paddle.bfloat16) and tensor.place.is_cpu_place():
            name = str(tensor.dtype).rpartition(".")[2]
            raise ValueError(f"{taker} in {name} needs a GPU: on a CPU convert features and layers to float32")
