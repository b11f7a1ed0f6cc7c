"""What an update costs beside the passes: the gradients' norm with clipping, AdamW, and averaged weights.

    python benchmarks/update.py [--peer-python /path/to/an/interpreter/with/torch]

The parameters of ViT-Ti/16 with given gradients, one thread. Ours is what a training does: operations on
one vector for the norm and the average, Paddle's operations on lists for clipping and AdamW. The peers are Paddle's own
functions for the same (``clip_grad_norm_``, AdamW, two operations per average), and torch's (``clip_grad_norm_``, fused
AdamW, ``_foreach_lerp_``) where there is an interpreter that has it.
"""

import time
from collections.abc import Callable
from typing import Any

import children
import rounds
from contenders import serve, started_peer

ROUNDS, WARM_UP_ROUNDS = 15, 2
CLIP, DECAY, RATE, WEIGHT_DECAY = 0.5, 0.999, 1e-4, 0.05
PARTS = ("norm and clipping", "AdamW", "average", "all three")
OURS, PADDLE, TORCH = "ours", "Paddle's own", "torch"
SERVES = "--torch-peer"


def timed(parts: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], float]]:
    """For each part a function that runs it and returns its seconds, and one for all of them in order."""

    def run(functions: list[Callable[[], Any]]) -> float:
        started = time.perf_counter()
        for function in functions:
            function()
        return time.perf_counter() - started

    single = {name: (lambda function=function: run([function])) for name, function in parts.items()}
    return {**single, PARTS[-1]: lambda: run(list(parts.values()))}


def paddle_contenders() -> dict[str, dict[str, Callable[[], float]]]:
    """Ours and Paddle's, each with a model of its own."""
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.engine.model_ema import ModelEma
    from paddlevit_dist.core.engine.multi_tensor import GradientList, clipping_factor
    from paddlevit_dist.core.engine.optimizer import build_optimizer, decay_groups
    from paddlevit_dist.core.settings import load

    def contender(is_ours: bool) -> dict[str, Callable[[], float]]:
        paddle.seed(0)
        model = create_model("vit_tiny_patch16_224")
        named = dict(model.named_parameters())
        groups = [{**g, "params": [named[name] for name in g.pop("names")]} for g in decay_groups(model, WEIGHT_DECAY)]
        if is_ours:
            optimizer = build_optimizer(load([]).values.TRAIN.OPTIMIZER, model, None, WEIGHT_DECAY)
        else:
            optimizer = paddle.optimizer.AdamW(RATE, parameters=groups, weight_decay=WEIGHT_DECAY)
        optimizer.set_lr(RATE)
        parameters = model.parameters()
        for parameter in parameters:
            parameter.grad = paddle.randn(parameter.shape) * 0.01
        averages = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

        @paddle.no_grad()
        def average() -> None:
            for name, tensor in model.state_dict().items():
                averages[name].subtract_((averages[name] - tensor).scale(1.0 - DECAY))

        gradients = GradientList(parameters)

        def clip_once() -> None:
            gradients.scale(clipping_factor(gradients.norm(), CLIP))

        if is_ours:
            return timed(dict(zip(PARTS, (clip_once, optimizer.step, ModelEma(model, DECAY).update))))
        clip = lambda: paddle.nn.utils.clip_grad_norm_(parameters, CLIP).item()  # noqa: E731
        return timed(dict(zip(PARTS, (clip, optimizer.step, average))))

    return {OURS: contender(True), PADDLE: contender(False)}


def build_torch_parts(shapes: list[list[int]]) -> dict[str, Callable[[], float]]:
    """torch's parts for weights of these shapes."""
    import torch

    torch.set_num_threads(1)
    weights = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    for weight in weights:
        weight.grad = torch.randn(weight.shape) * 0.01
    averages = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=WEIGHT_DECAY, fused=True)

    @torch.no_grad()
    def average() -> None:
        torch._foreach_lerp_(averages, [weight.detach() for weight in weights], 1.0 - DECAY)

    clip = lambda: torch.nn.utils.clip_grad_norm_(weights, CLIP).item()  # noqa: E731
    return timed(dict(zip(PARTS, (clip, optimizer.step, average))))


def serve_torch() -> None:
    """The torch peer: the first request has the shapes of the weights, the others name a part."""
    parts: dict[str, Callable[[], float]] = {}

    def answer(shapes: list[list[int]] | None = None, part: str = "") -> float | None:
        if shapes is not None:
            parts.update(build_torch_parts(shapes))
            return None
        return parts[part]()

    serve(answer)


def measure(peer_python: str) -> None:
    """Let all contenders take turns, part by part."""
    from paddlevit_dist import create_model

    rounds.print_machine()
    contenders = paddle_contenders()
    with started_peer(__file__, peer_python, SERVES) as peer:
        if peer is None:
            print("no --peer-python: not compared with torch")
        else:
            peer(shapes=[list(parameter.shape) for parameter in create_model("vit_tiny_patch16_224").parameters()])
            contenders[TORCH] = {part: (lambda part=part: peer(part=part)) for part in PARTS}
        rows, result = [], {}
        for part in PARTS:
            seconds = rounds.interleave({name: c[part] for name, c in contenders.items()}, ROUNDS, WARM_UP_ROUNDS)
            for name, values in seconds.items():
                ratio = rounds.ratios(values, seconds[OURS])
                rows.append([part, name, rounds.Spread.of(values).text(1e3), ratio.text()])
                if name != OURS:
                    result[f"{part}: {name} / ours"] = ratio.median
    rounds.print_table(f"ViT-Ti/16, one thread, {ROUNDS} rounds", ["part", "of", "ms", "times ours"], rows)
    rounds.print_result(result)


if __name__ == "__main__":
    children.run_with_torch_peer(__file__, __doc__.splitlines()[0], SERVES, serve_torch, measure)
