"""What the host does in an update on a GPU: operations that it launches, and its time, counted on a CPU.

    python benchmarks/host_update.py [--updates 30]

ViT-Ti/16 with the branches of a GPU, forced on a CPU: its blocks and layers, but tensors of a few numbers, so that
kernels take next to no time and what is left is Python and Paddle's dispatch. One thread. "float32" is a whole update,
without waits; "half" its forward and backward pass as with ``-amp`` at O1. No CPU has kernels for that, so float64
stands for float32 there, and float32 for half precision. A product and a sum stand for the fused product with bias, of
which the sum is not counted; sums stand for fused attention, counted as one operation forward and one backward; casts
are made where Paddle's autocast makes them. Operations are what Paddle's profiler sees, with gradients. The fastest of
all updates counts for the time, in CPU seconds of this process.
"""

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import rounds
from smallest import sized

MODEL = (
    "MODEL.EMBED_DIM 16 MODEL.NUM_HEADS 2 MODEL.NUM_CLASSES 10 MODEL.DROPOUT 0.0 DATA.IMAGE_SIZE 32 TRAIN.GRAD_CLIP 1.0"
)
IMAGES = 2
STAND_INS: Counter = Counter()  # operations of an update that a GPU would not launch


def build(dtype: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return a whole update and its passes alone, of a model with parameters in ``dtype``."""
    import numpy as np
    import paddle

    from paddlevit_dist.core import settings
    from paddlevit_dist.core.engine import TrainStep
    from paddlevit_dist.core.engine.optimizer import build_optimizer
    from paddlevit_dist.core.engine.precision import TrainingPrecision
    from paddlevit_dist.core.registry.lookup import resolve
    from paddlevit_dist.core.runtime.half_weights import HalfWeights
    from paddlevit_dist.core.tasks.step_types import StepPosition

    values = settings.load(["-cfg=vit_tiny_patch16_224", *MODEL.split()]).values
    task = resolve("task", "classification")(values)
    paddle.seed(0)
    paddle.set_default_dtype(dtype)
    model = task.build_model()
    paddle.set_default_dtype("float32")
    model.train()
    linear = [layer for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)]
    halves = HalfWeights([each for layer in linear for each in (layer.weight, layer.bias)], paddle.float32)
    optimizer = build_optimizer(values.TRAIN.OPTIMIZER, model, None, 0.05)
    precision = TrainingPrecision(False)
    sizes: dict[str, Any] = {"samples_per_update": IMAGES, "accumulation_steps": 1, "gradient_clip": 1.0}
    step = TrainStep(task, model, optimizer, precision, seed=0, on_host=False, **sizes)
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    batch = {"images": paddle.to_tensor(pixels), "labels": paddle.to_tensor(np.arange(IMAGES))}
    position = StepPosition(1, 0, 1000)

    def passes() -> None:
        with halves.in_use():
            terms = task.train_step(model, batch, position)
        precision.backward(terms["loss"].sum)
        optimizer.clear_grad(False)

    return lambda: step.launch([dict(batch)], position, 1e-3), passes


@contextlib.contextmanager
def on_gpu(in_half: bool) -> Iterator[None]:
    """Take a GPU's branches inside the block."""
    import paddle

    from paddlevit_dist.core.runtime import autocast, biases, layers
    from paddlevit_dist.images.models.attention import attention

    # What they take themselves is no time of the host on a GPU, where Paddle's C++ does this.
    def like_half(tensor: Any) -> Any:
        return tensor if tensor is None or tensor.element_size() == 4 else cast(tensor, float32)

    def fused_linear(x: Any, weight: Any, bias: Any) -> Any:
        STAND_INS["add"] += 1
        STAND_INS["add_grad"] += 1
        return linear(like_half(x), like_half(weight), like_half(bias))

    def attention_stand_in(q: Any, k: Any, v: Any, **_: Any) -> Any:
        STAND_INS["scale"] += 2  # the gradient of a sum of three is three scalings
        return add_n([q, k, v])

    def conv2d(x: Any, weight: Any, *others: Any) -> Any:
        return convolve(like_half(x), like_half(weight), *others)

    linear, convolve, cast, add_n = (getattr(paddle._C_ops, name) for name in ("linear", "conv2d", "cast", "add_n"))
    float32 = paddle.float32
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(biases, "_is_on_gpu", lambda tensor: True))
        if in_half:
            stack.enter_context(attention(fused=True))
            stand_ins: list[tuple[Any, str, Any]] = [
                (autocast, "product_dtype", lambda: paddle.float32),
                (layers, "_keeps_epsilon_in_float32", lambda x: False),  # float64 stands for float32
                (biases, "has_epilogue", lambda weight, bias, dtype: True),
                (biases, "fused_linear", fused_linear),
                (paddle._C_ops, "conv2d", conv2d),
                (paddle.nn.functional, "scaled_dot_product_attention", attention_stand_in),
            ]
            for owner, name, stand_in in stand_ins:
                stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


def count_operations(update: Callable[[], Any]) -> Counter:
    """Count the operations of an update by name, as Paddle's profiler sees them."""
    import paddle.profiler as profiler

    STAND_INS.clear()
    with profiler.Profiler(targets=[profiler.ProfilerTarget.CPU], on_trace_ready=lambda _: None) as seen:
        update()
    found: Counter = Counter()

    def walk(node: Any) -> None:
        if node.name.endswith(" infer_meta"):
            found[node.name.removesuffix(" infer_meta")] += 1
        for child in node.children_node:
            walk(child)

    for tree in seen.profiler_result.get_data().values():
        walk(tree)
    return found - STAND_INS


def measure(update: Callable[[], Any], updates: int) -> tuple[Counter, float]:
    """Return the operations of an update by name and the host's milliseconds."""
    for _ in range(3):
        update()
    operations, seconds = count_operations(update), []
    for _ in range(updates):
        started = time.process_time()
        update()
        seconds.append(time.process_time() - started)
    return operations, 1e3 * min(seconds)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=sized(100, 2))
    options = parser.parse_args(arguments)
    # One thread, views as on a GPU, and Paddle's layers instead of those for CPUs.
    os.environ.update(OMP_NUM_THREADS="1", FLAGS_use_stride_kernel="1", PADDLEVIT_DIST_PLAIN_LAYERS="1")
    rounds.print_machine()
    result: dict[str, float] = {}
    for name, in_half in (("float32", False), ("half", True)):
        whole, passes = build("float64" if in_half else "float32")
        with on_gpu(in_half):
            operations, milliseconds = measure(passes if in_half else whole, options.updates)
        result.update({f"{name} operations": operations.total(), f"{name} ms": milliseconds})
        most = ", ".join(f"{operation} {number}" for operation, number in operations.most_common(12))
        print(f"{name}: {operations.total()} operations, {milliseconds:.2f} ms of the host; {most}", flush=True)
    rounds.print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
