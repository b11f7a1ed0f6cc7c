"""What the sparse convolution is measured against: the same pairs in torch, ``paddle.sparse``, and products alone."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, MapKey

Timed = Callable[[], float]
DEPTHS, WIDTHS = (1,) * 8, (32, 64, 128, 256, 128, 128, 96, 96)  # of MinkUNet14A
NUM_CLASSES = 20


def pairs_by_offset(plan: CoordinatePlan, key: MapKey) -> list[tuple[np.ndarray, np.ndarray]]:
    """(coarse rows, fine rows), int64, of each kernel offset, the center of a symmetric kernel too."""
    lists = plan.kernel_map(key)[0]
    offset = np.repeat(np.tile(np.arange(lists.counts.shape[1]), len(lists.counts)), lists.counts.ravel())
    pairs = [
        (lists.out_rows[offset == k].astype(np.int64), lists.in_rows[offset == k].astype(np.int64))
        for k in range(lists.counts.shape[1])
    ]
    if key.is_symmetric:
        every_row = np.arange(len(plan.level(key.fine).order))
        pairs[len(pairs) // 2] = (every_row, every_row)
    return pairs


class TorchPeer:
    """Gather, product and scatter-add with torch's own gradient, on all cores."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch

    def convolve(self, x: Any, weight: Any, pairs: list[tuple[Any, Any]], rows: int) -> Any:
        """``out[out_rows] += x[in_rows] @ weight[k]`` over the kernel offsets."""
        out = self.torch.zeros(rows, weight.shape[2])
        for k, (out_rows, in_rows) in enumerate(pairs):
            out.index_add_(0, out_rows, x[in_rows] @ weight[k])
        return out

    def pairs(self, plan: CoordinatePlan, key: MapKey) -> list[tuple[Any, Any]]:
        """The same for torch."""
        return [tuple(self.torch.from_numpy(rows) for rows in pair) for pair in pairs_by_offset(plan, key)]

    def layer(self, plan: CoordinatePlan, channels: int) -> tuple[Timed, Timed]:
        """Forward, and forward + backward, of one 3 x 3 x 3 convolution."""
        torch = self.torch
        pairs = self.pairs(plan, MapKey(1, 1, 3))
        rows = len(plan.level(1).order)
        x = torch.randn(rows, channels, requires_grad=True)
        weight = torch.randn(27, channels, channels, requires_grad=True)
        slope = torch.randn(rows, channels)

        def forward() -> float:
            with torch.no_grad():
                return seconds(lambda: self.convolve(x, weight, pairs, rows))

        def both() -> float:
            taken = seconds(lambda: self.convolve(x, weight, pairs, rows).backward(slope))
            x.grad = weight.grad = None
            return taken

        return forward, both

    def network(
        self, plan: CoordinatePlan, depths: tuple[int, ...] = DEPTHS, widths: tuple[int, ...] = WIDTHS
    ) -> Timed:
        """A training step of a MinkUNet, of MinkUNet14A unless other blocks and widths are given."""
        torch = self.torch
        rows = len(plan.level(1).order)
        model = self._minkunet(plan, depths, widths)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        features, labels = torch.randn(rows, 3), torch.randint(0, NUM_CLASSES, (rows,))

        def step() -> float:
            def run() -> None:
                torch.nn.functional.cross_entropy(model(features), labels).backward()
                optimizer.step()
                optimizer.zero_grad()

            return seconds(run)

        return step

    def _minkunet(self, plan: CoordinatePlan, depths: tuple[int, ...], widths: tuple[int, ...]) -> Any:
        torch, peer = self.torch, self
        maps: dict[MapKey, Any] = {}

        def tables(key: MapKey) -> Any:
            if key not in maps:
                maps[key] = peer.pairs(plan, key)
            return maps[key]

        class Convolution(torch.nn.Module):
            def __init__(self, key: MapKey, inputs: int, outputs: int, up: bool = False) -> None:
                super().__init__()
                pairs = tables(key)
                self.pairs = [pair[::-1] for pair in pairs] if up else pairs
                self.rows = len(plan.level(key.fine if up else key.coarse).order)
                self.weight = torch.nn.Parameter(torch.randn(len(pairs), inputs, outputs) * 0.05)

            def forward(self, x: Any) -> Any:
                return peer.convolve(x, self.weight, self.pairs, self.rows)

        def normed(convolution: Any, channels: int) -> Any:
            return torch.nn.Sequential(convolution, torch.nn.BatchNorm1d(channels))

        class Block(torch.nn.Module):
            def __init__(self, stride: int, inputs: int, outputs: int) -> None:
                super().__init__()
                key = MapKey(stride, stride, 3)
                self.first = normed(Convolution(key, inputs, outputs), outputs)
                self.second = normed(Convolution(key, outputs, outputs), outputs)
                linear = torch.nn.Linear(inputs, outputs, bias=False)
                self.shortcut = torch.nn.Identity() if inputs == outputs else normed(linear, outputs)

            def forward(self, x: Any) -> Any:
                return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))

        def stage(number: int, stride: int, inputs: int) -> Any:
            width = widths[number]
            blocks = [Block(stride, inputs, width), *(Block(stride, width, width) for _ in range(depths[number] - 1))]
            return torch.nn.Sequential(*blocks)

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.stem = normed(Convolution(MapKey(1, 1, 5), 3, 32), 32)
                self.down, self.up = torch.nn.ModuleList(), torch.nn.ModuleList()
                channels, skipped = 32, [32]
                for number, (width, stride) in enumerate(zip(widths[:4], (1, 2, 4, 8))):
                    down = normed(Convolution(MapKey(stride, 2 * stride, 2), channels, channels), channels)
                    self.down.append(torch.nn.ModuleList([down, stage(number, 2 * stride, channels)]))
                    channels = width
                    skipped.append(width)
                skipped.pop()
                for number, (width, stride) in enumerate(zip(widths[4:], (8, 4, 2, 1)), start=4):
                    up = normed(Convolution(MapKey(stride, 2 * stride, 2), channels, width, up=True), width)
                    self.up.append(torch.nn.ModuleList([up, stage(number, stride, width + skipped.pop())]))
                    channels = width
                self.final = torch.nn.Linear(channels, NUM_CLASSES)

            def forward(self, x: Any) -> Any:
                x = torch.relu(self.stem(x))
                skipped = [x]
                for down, block in self.down:
                    x = block(torch.relu(down(x)))
                    skipped.append(x)
                skipped.pop()
                for up, block in self.up:
                    x = block(torch.cat([torch.relu(up(x)), skipped.pop()], dim=1))
                return self.final(x)

        return Network()


def products_alone(plan: CoordinatePlan, channels: int, threads: int) -> tuple[Timed, Timed]:
    """The products of existing pairs, forward and forward + backward, from rows that lie ready; offsets are shared
    among threads as ours shares blocks. Nothing can be faster that multiplies pairs with this library."""
    import paddle

    counts = [len(rows) for rows, _ in pairs_by_offset(plan, MapKey(1, 1, 3))]
    inputs = [paddle.randn([count, channels]) for count in counts]
    slopes = [paddle.randn([count, channels]) for count in counts]
    weights = [paddle.randn([channels, channels]) for _ in counts]
    pool = ThreadPoolExecutor(threads)

    def run(backward: bool, part: int) -> None:
        with paddle.no_grad():
            for x, slope, weight in list(zip(inputs, slopes, weights))[part::threads]:
                paddle.matmul(x, weight)
                if backward:
                    paddle.matmul(slope, weight, transpose_y=True)
                    paddle.matmul(x, slope, transpose_x=True)

    def timed(backward: bool) -> float:
        return seconds(lambda: list(pool.map(lambda part: run(backward, part), range(threads))))

    return (lambda: timed(False)), (lambda: timed(True))


def paddle_sparse(plan: CoordinatePlan, channels: int) -> Timed:
    """Forward + backward of ``paddle.sparse``'s submanifold convolution on the same voxels."""
    import paddle

    level = plan.level(1)
    coordinates = level.coordinates[level.order]
    coordinates[:, 1:] -= coordinates[:, 1:].min(axis=0)
    extent = (coordinates.max(axis=0) + 1).tolist()
    convolution = paddle.sparse.nn.SubmConv3D(channels, channels, 3, padding=1, bias_attr=False)
    indices = paddle.to_tensor(coordinates.T.astype(np.int32))

    def both() -> float:
        values = paddle.randn([len(coordinates), channels])
        values.stop_gradient = False
        x = paddle.sparse.sparse_coo_tensor(indices, values, [*extent, channels], stop_gradient=False)
        return seconds(lambda: convolution(x).values().sum().backward())

    return both


def seconds(run: Callable[[], Any]) -> float:
    """Of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
