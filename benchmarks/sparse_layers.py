"""Layers on sparse tensors that are no plain convolution, or find their voxels while they run, over bare products.

A layer's time is that of its forward and backward pass from features and coordinates, with the search for its voxels
and pairs, and Paddle's record of gradients. Its bare products are these operations alone, on known rows and shares:

- convolutions: for each offset of the kernel ``matmul`` of gathered rows, added to the output rows; backward the
  same with the gradient, and ``matmul`` of both gathered rows. Depthwise: products and sums of rows in their place.
- pruning: a gather, backward a scatter. Union: two scatters that add, backward two gathers.
- interpolation: for each of 8 corners a gather times a share, added; backward a scatter that adds. Splat: the reverse.
- pooling of scenes: a sum (a product with ones), or a maximum; backward a gather. InstanceNorm: the sums and products
  of its formula, and of its gradient's (S. Ioffe, C. Szegedy, 2015, section 3, over the voxels of a scene).

All are Paddle's operations, in the same process, on the same threads.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sparse_peers import Timed, seconds

SCENES = 4
CHANNELS = 32


class Bare(NamedTuple):
    """The products of a layer's forward pass, and of its backward pass from a gradient."""

    forward: Callable[[], Any]
    backward: Callable[[], Any]


class Layers:
    """Each layer on the voxels of a room that is cut into scenes.

    Args:
        coordinates: integers (N, 4) of one scene.
    """

    def __init__(self, coordinates: np.ndarray) -> None:
        import paddle

        from paddlevit_dist.points import sparse

        self.paddle, self.sparse = paddle, sparse
        number = len(coordinates)
        self.coordinates = coordinates.copy()
        self.coordinates[:, 0] = np.arange(number) * SCENES // number
        plan = sparse.Plan.of_coordinates(self.coordinates)
        self.x = sparse.SparseTensor(self.rows(number), plan=plan)
        self.coarse = {s: sparse.SparseTensor(self.rows(plan.rows(s)), plan=plan, stride=s) for s in (2, 4)}
        self.scenes = np.array_split(np.arange(number), SCENES)
        noise = np.random.default_rng(0).uniform(0, 1, (number, 3))
        self.points = np.concatenate([self.coordinates[:, :1], self.coordinates[:, 1:] + noise], axis=1)

    def rows(self, number: int) -> Any:
        features = self.paddle.randn([number, CHANNELS])
        features.stop_gradient = False
        return features

    def measures(self, name: str) -> dict[str, Timed]:
        """The times of a layer, "ours", and of its products, "bare"."""
        layer, inputs, bare = getattr(self, name)()
        result = layer()
        slope = self.paddle.randn(getattr(result, "features", result).shape)
        products = bare(result, slope)

        def ours() -> float:
            def run() -> None:
                found = layer()
                getattr(found, "features", found).backward(slope)

            taken = seconds(run)
            for features in inputs:
                features.clear_gradient(set_to_zero=False)
            return taken

        def alone() -> float:
            with self.paddle.no_grad():
                return seconds(lambda: (products.forward(), products.backward()))

        return {"ours": ours, "bare": alone}

    def depthwise(self) -> Any:
        return self._convolution(self.sparse.DepthwiseConvolution(CHANNELS, 3), self.x)

    def per_axis(self) -> Any:
        return self._convolution(self.sparse.Convolution(CHANNELS, CHANNELS, (3, 3, 1), (1, 1, 2)), self.x)

    def transposed(self) -> Any:
        return self._convolution(self.sparse.TransposedConvolution(CHANNELS, CHANNELS, 2, 2), self.coarse[2])

    def generative(self) -> Any:
        return self._convolution(self.sparse.GenerativeConvolution(CHANNELS, CHANNELS, 2, 2), self.coarse[2])

    def generative_3(self) -> Any:
        return self._convolution(self.sparse.GenerativeConvolution(CHANNELS, CHANNELS, 3, 2), self.coarse[4])

    def padded(self) -> Any:
        return self._convolution(self.sparse.PaddedConvolution(CHANNELS, CHANNELS, 3, 2, 1), self.x)

    def _convolution(self, layer: Any, x: Any) -> Any:
        paddle = self.paddle

        def bare(y: Any, slope: Any) -> Bare:
            transposed = layer._transposed
            fine, coarse = (y, x) if transposed else (x, y)
            found = fine.plan.map_to(fine.stride, coarse.coordinates, layer._offsets(fine.stride)).to_coarse
            of_offset: dict[int, list[Any]] = {}
            for one in found.lists():
                of_offset.setdefault(one.offset, []).append(one)
            pairs = []  # (index of the matrix, output rows, input rows)
            for offset, lists in of_offset.items():
                sides = [paddle.concat([getattr(one, side) for one in lists]) for side in ("out_rows", "in_rows")]
                pairs.append((offset, *(sides[::-1] if transposed else sides)))
            is_by_channel = isinstance(layer, self.sparse.DepthwiseConvolution)
            shape = [-1, CHANNELS] if is_by_channel else [-1, CHANNELS, CHANNELS]
            matrices = paddle.unbind(layer.parameters()[0].reshape(shape), 0)
            if is_by_channel:
                times, turned = paddle.multiply, matrices
                outer = lambda own, given: (own * given).t().sum(axis=1)  # noqa: E731
            else:
                times, turned = paddle.matmul, [matrix.t().contiguous() for matrix in matrices]
                outer = functools.partial(paddle.matmul, transpose_x=True)

            def add(total: Any, rows: Any, products: Any) -> None:
                paddle.scatter_(total, rows, paddle.gather(total, rows) + products)

            def forward() -> None:
                total = paddle.zeros(slope.shape)
                for k, out_rows, in_rows in pairs:
                    add(total, out_rows, times(paddle.gather(x.features, in_rows), matrices[k]))

            def backward() -> None:
                total = paddle.zeros(x.features.shape)
                for k, out_rows, in_rows in pairs:
                    own = paddle.gather(slope, out_rows)
                    add(total, in_rows, times(own, turned[k]))
                    outer(paddle.gather(x.features, in_rows), own)

            return Bare(forward, backward)

        return lambda: layer(x), [x.features, *layer.parameters()], bare

    def pruning(self) -> Any:
        keep = np.arange(len(self.coordinates)) % 3 > 0
        rows, features = self.paddle.to_tensor(np.flatnonzero(keep)), self.x.features

        def bare(y: Any, slope: Any) -> Bare:
            gather, scatter, zeros = self.paddle.gather, self.paddle.scatter, self.paddle.zeros
            return Bare(lambda: gather(features, rows), lambda: scatter(zeros(features.shape), rows, slope))

        return lambda: self.sparse.prune(self.x, keep), [features], bare

    def union(self) -> Any:
        other = self.sparse.SparseTensor(self.rows(len(self.coordinates)), self.coordinates + np.array([0, 1, 0, 0]))
        both = self.x, other

        def bare(y: Any, slope: Any) -> Bare:
            rows = [self.paddle.to_tensor(y.plan.find(1, one.coordinates)) for one in both]

            def forward() -> None:
                total = self.paddle.scatter(self.paddle.zeros(slope.shape), rows[0], self.x.features)
                self.paddle.scatter_nd_add(total, rows[1].unsqueeze(1), other.features)

            return Bare(forward, lambda: [self.paddle.gather(slope, own) for own in rows])

        return lambda: self.sparse.union(*both), [one.features for one in both], bare

    def interpolation(self) -> Any:
        features = self.x.features

        def bare(y: Any, slope: Any) -> Bare:
            collect, spread = self._corners(self.x, len(features))
            return Bare(lambda: collect(features), lambda: spread(slope))

        return lambda: self.sparse.features_at(self.x, self.points), [features], bare

    def splat(self) -> Any:
        features = self.x.features
        field = self.sparse.PointFeatures(features, self.points)

        def bare(y: Any, slope: Any) -> Bare:
            collect, spread = self._corners(y, len(slope))
            return Bare(lambda: spread(features), lambda: collect(slope))

        return field.splat, [features], bare

    def _corners(self, x: Any, number: int) -> tuple[Callable, Callable]:
        """From voxels to points by the shares of the corners, and from points to voxels."""
        paddle, corners = self.paddle, []
        lower = np.floor(self.points).astype(np.int64)
        along = self.points[:, 1:] - lower[:, 1:]
        for corner in itertools.product((0, 1), repeat=3):
            rows = x.plan.find(1, lower + np.array([0, *corner]))
            shares = np.where(corner, along, 1 - along).prod(axis=1) * (rows >= 0)
            given = paddle.to_tensor(shares[:, None].astype(np.float32))
            corners.append((paddle.to_tensor(np.maximum(rows, 0)), given))

        def collect(features: Any) -> Any:
            return sum(paddle.gather(features, rows) * shares for rows, shares in corners)

        def spread(features: Any) -> Any:
            total = paddle.zeros([number, CHANNELS])
            for rows, shares in corners:
                total = paddle.scatter_nd_add(total, rows.unsqueeze(1), features * shares)
            return total

        return collect, spread

    def global_average(self) -> Any:
        return self._global("average")

    def global_maximum(self) -> Any:
        return self._global("max")

    def _global(self, mode: str) -> Any:
        layer, features = self.sparse.GlobalPooling(mode), self.x.features

        def bare(y: Any, slope: Any) -> Bare:
            numbers, matmul = self._numbers(), self._sums
            parts = lambda: self.paddle.split(features, [len(rows) for rows in self.scenes])  # noqa: E731
            largest = lambda: [part.t().max(axis=1) for part in parts()]  # noqa: E731
            return Bare(
                (lambda: matmul(features)) if mode == "average" else largest, lambda: self.paddle.gather(slope, numbers)
            )

        return lambda: layer(self.x), [features], bare

    def instance_norm(self) -> Any:
        layer, x, paddle = self.sparse.InstanceNorm(CHANNELS), self.x.features, self.paddle
        layer.weight.stop_gradient = layer.bias.stop_gradient = False

        def bare(y: Any, slope: Any) -> Bare:
            numbers = self._numbers()
            spread = lambda vectors: paddle.gather(vectors, numbers)  # noqa: E731
            mean = lambda rows: self._sums(rows) / (len(x) / SCENES)  # noqa: E731
            kept: dict[str, Any] = {}

            def forward() -> None:
                centered = x - spread(mean(x))
                scale = spread(paddle.rsqrt(mean(centered * centered) + layer.epsilon))
                kept.update(scale=scale, normal=centered * scale)
                kept["normal"] * layer.weight + layer.bias

            def backward() -> None:
                own = slope * layer.weight
                both = spread(mean(own)), spread(mean(own * kept["normal"]))
                (own - both[0] - kept["normal"] * both[1]) * kept["scale"]

            return Bare(forward, backward)

        return lambda: layer(self.x), [x, *layer.parameters()], bare

    def _numbers(self) -> Any:
        return self.paddle.to_tensor(self.coordinates[:, 0].astype(np.int32))

    def _sums(self, rows: Any) -> Any:
        """Of each scene (SCENES, C)."""
        parts = self.paddle.split(rows, [len(own) for own in self.scenes])
        return self.paddle.concat([self.paddle.matmul(self.paddle.ones([1, len(part)]), part) for part in parts])


NAMES = (
    *("depthwise", "per_axis", "transposed", "generative", "generative_3", "padded", "pruning", "union"),
    *("interpolation", "splat", "global_average", "global_maximum", "instance_norm"),
)
