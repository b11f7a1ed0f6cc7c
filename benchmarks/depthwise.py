"""Depth-wise convolutions as ConvNeXt-T and PVTv2-B2 have them at 224 pixels, on a CPU, batch 8, one thread.

    python benchmarks/depthwise.py [--peer-python /path/to/an/interpreter/with/torch]

Forward without gradients, the backward pass for the input alone, and for weight and bias alone. Ours takes images
with channels last; the peers, Paddle's own convolution and torch's where there is an interpreter that has it, take them
as Paddle's and timm's models do, channels first.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import children
import rounds
from contenders import serve, started_peer
from smallest import sized

ROUNDS, WARM_UP_ROUNDS, BATCH = 9, 2, sized(8, 1)
OURS, PADDLE, TORCH = "ours", "Paddle's own", "torch"
PARTS = ("forward", "by input", "by weight")
SERVES = "--torch-peer"


class Case(NamedTuple):
    """A stage of a model."""

    name: str
    kernel_size: int
    channels: int
    side: int


CASES = [
    *(Case("ConvNeXt-T", 7, channels, side) for channels, side in ((96, 56), (192, 28), (384, 14), (768, 7))),
    *(Case("PVTv2-B2", 3, channels, side) for channels, side in ((512, 56), (1024, 28), (1280, 14), (2048, 7))),
][: sized(8, 2)]


def get_seconds(
    part: str, layer: Any, x: Any, gradient: Any, wants: Callable[[Any, bool], None], no_grad: Any
) -> float:
    """Time one part of a convolution; ``wants(tensor, whether)`` says whether a tensor receives a gradient."""
    if part == PARTS[0]:
        with no_grad():
            started = time.perf_counter()
            layer(x)
            return time.perf_counter() - started
    wants(x, part == PARTS[1])
    for parameter in layer.parameters():
        wants(parameter, part == PARTS[2])
    value = layer(x)
    started = time.perf_counter()
    value.backward(gradient)
    return time.perf_counter() - started


def of_paddle(case: Case, is_ours: bool) -> Callable[[str], float]:
    """Seconds of a part."""
    import paddle

    from paddlevit_dist.extensions.cpu_kernels.layers import FastDepthwiseConv

    channels, side, size = case.channels, case.side, case.kernel_size
    if is_ours:
        layer, shape = FastDepthwiseConv(channels, size), [BATCH, side, side, channels]
    else:
        layer = paddle.nn.Conv2D(channels, channels, size, padding=size // 2, groups=channels)
        shape = [BATCH, channels, side, side]
    x, gradient = paddle.randn(shape), paddle.randn(shape)

    def wants(tensor: Any, does: bool) -> None:
        tensor.stop_gradient = not does

    return lambda part: get_seconds(part, layer, x, gradient, wants, paddle.no_grad)


def serve_torch() -> None:
    """The torch peer."""
    import torch

    torch.set_num_threads(1)
    made: dict[Case, Sequence[Any]] = {}

    def answer(part: str, **values: Any) -> float:
        nonlocal made
        case = Case(**values)
        if case not in made:
            size, shape = case.kernel_size, (BATCH, case.channels, case.side, case.side)
            layer = torch.nn.Conv2d(case.channels, case.channels, size, padding=size // 2, groups=case.channels)
            made = {case: (layer, torch.randn(shape), torch.randn(shape))}
        wants = lambda tensor, does: tensor.requires_grad_(does)  # noqa: E731
        return get_seconds(part, *made[case], wants, torch.inference_mode)

    serve(answer)


def measure(peer_python: str) -> None:
    """Let all contenders take turns, case by case."""
    rounds.print_machine()
    rows: list[list[str]] = []
    result: dict[str, float] = {}
    with started_peer(__file__, peer_python, SERVES) as peer:
        for case in CASES:
            timers = {OURS: of_paddle(case, True), PADDLE: of_paddle(case, False)}
            if peer is not None:
                timers[TORCH] = lambda part, case=case: peer(part=part, **case._asdict())
            for part in PARTS:
                contenders = {name: (lambda timer=timer, part=part: timer(part)) for name, timer in timers.items()}
                seconds = rounds.interleave(contenders, ROUNDS, WARM_UP_ROUNDS)
                title = f"{case.name} {case.kernel_size} x {case.kernel_size}, {case.channels} at {case.side}"
                cells = [
                    rounds.Spread.of(seconds[name]).text(1e3) if name in seconds else ""
                    for name in (OURS, PADDLE, TORCH)
                ]
                rows.append([title, part, *cells])
                for name in timers:
                    if name != OURS:
                        ratio = rounds.ratios(seconds[name], seconds[OURS]).median
                        result[f"{case.name} {case.channels} {part}: {name} / ours"] = ratio
    rounds.print_table(f"Batch {BATCH}, ms, {ROUNDS} rounds", ["convolution", "part", OURS, PADDLE, TORCH], rows)
    if peer is None:
        print("no --peer-python: not compared with torch")
    rounds.print_result(result)


if __name__ == "__main__":
    children.run_with_torch_peer(__file__, __doc__.splitlines()[0], SERVES, serve_torch, measure)
