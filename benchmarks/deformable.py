"""Deformable sampling as RT-DETR-R18 has it at 320 pixels, on a CPU, batch 4, one thread: forward and backward.

    python benchmarks/deformable.py [--peer-python /path/to/an/interpreter/with/torch]

300 queries with 8 heads of 32 channels read 4 points of each of 3 maps. Ours, and ``grid_sample`` for each map as
PyTorch's implementations have it, of Paddle and, where there is an interpreter that has it, of torch.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import rounds
from smallest import sized

ROUNDS, WARM_UP_ROUNDS, BATCH = 15, 3, sized(4, 1)
SHAPES, POINTS = ((40, 40), (20, 20), (10, 10)), 4
QUERIES, HEADS, CHANNELS = 300, 8, 32
OURS, PADDLE, TORCH = "ours", "Paddle's grid_sample", "torch's grid_sample"
PARTS = ("forward", "backward")
SERVES = "--torch-peer"
CELLS = sum(rows * columns for rows, columns in SHAPES)
VALUES = (BATCH, CELLS, HEADS, CHANNELS)
LOCATIONS = (BATCH, QUERIES, HEADS, len(SHAPES) * POINTS, 2)


def timed(make_inputs: Callable[[], list[Any]], compute: Callable[..., Any], gradient: Any) -> list[float]:
    """Seconds of the forward and of the backward pass, with gradients by all inputs."""
    inputs = make_inputs()
    started = time.perf_counter()
    out = compute(*inputs)
    between = time.perf_counter()
    out.backward(gradient)
    return [between - started, time.perf_counter() - between]


def of_paddle(is_ours: bool) -> Callable[[], list[float]]:
    import paddle

    from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
    from paddlevit_dist.images.detection.rtdetr.deformable import PointSampling

    layer = PointSampling([POINTS] * len(SHAPES))
    if is_ours:
        accelerate(layer)
    given = paddle.randn(VALUES), paddle.rand(LOCATIONS), paddle.rand(LOCATIONS[:-1])
    gradient = paddle.randn([BATCH, QUERIES, HEADS * CHANNELS])

    def inputs() -> list[paddle.Tensor]:
        copies = [tensor.clone().detach() for tensor in given]
        for copy in copies:
            copy.stop_gradient = False
        return copies

    def compute(values: paddle.Tensor, locations: paddle.Tensor, weights: paddle.Tensor) -> paddle.Tensor:
        return layer(values, SHAPES, locations, weights)

    return lambda: timed(inputs, compute, gradient)


def serve_torch() -> None:
    """The torch peer: both times for each line."""
    import torch
    from torch.nn.functional import grid_sample

    torch.set_num_threads(1)
    given = torch.randn(VALUES), torch.rand(LOCATIONS), torch.rand(LOCATIONS[:-1])
    gradient = torch.randn(BATCH, QUERIES, HEADS * CHANNELS)

    def compute(values: torch.Tensor, locations: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        maps = values.permute(0, 2, 3, 1).flatten(0, 1).split([rows * columns for rows, columns in SHAPES], dim=-1)
        grids = (2 * locations - 1).transpose(1, 2).flatten(0, 1).split(POINTS, dim=2)
        found = [
            grid_sample(plane.unflatten(-1, shape), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
            for plane, grid, shape in zip(maps, grids, SHAPES)
        ]
        shares = weights.transpose(1, 2).reshape(BATCH * HEADS, 1, QUERIES, -1)
        return (torch.cat(found, dim=-1) * shares).sum(-1).view(BATCH, HEADS * CHANNELS, QUERIES).transpose(1, 2)

    def inputs() -> list[torch.Tensor]:
        return [tensor.clone().requires_grad_() for tensor in given]

    for _ in sys.stdin:
        print(*timed(inputs, compute, gradient), flush=True)


def ask(process: subprocess.Popen) -> list[float]:
    """Seconds of the torch peer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    reply = process.stdout.readline()
    if not reply:
        raise SystemExit(f"the peer ended with exit code {process.wait()}")
    return [float(word) for word in reply.split()]


def measure(peer_python: str) -> None:
    """Let all contenders take turns."""
    rounds.print_machine()
    contenders, peer = {OURS: of_paddle(True), PADDLE: of_paddle(False)}, None
    if peer_python:
        environment = {**rounds.clean_environment(), "OMP_NUM_THREADS": "1"}
        peer = rounds.start([peer_python, __file__, SERVES], environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        contenders[TORCH] = lambda: ask(peer)
    try:
        found = rounds.interleave(contenders, ROUNDS, WARM_UP_ROUNDS)
    finally:
        if peer is not None:
            rounds.end(peer)
    rows, result = [], {}
    for part, title in enumerate((*PARTS, "both")):
        seconds = {
            name: [sum(pair) if part == len(PARTS) else pair[part] for pair in pairs] for name, pairs in found.items()
        }
        rows.append([title, *(rounds.Spread.of(values).text(1e3) for values in seconds.values())])
        for name in (name for name in contenders if name != OURS):
            result[f"{title}: {name} / ours"] = rounds.ratios(seconds[name], seconds[OURS]).median
    rounds.table(f"Batch {BATCH}, ms, {ROUNDS} rounds", ["part", *contenders], rows)
    if peer is None:
        print("no --peer-python: not compared with torch")
    rounds.print_result(result)


if __name__ == "__main__":
    rounds.run_with_torch_peer(__file__, __doc__.splitlines()[0], SERVES, serve_torch, measure)
