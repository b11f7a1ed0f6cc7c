"""What the host does in an update on a GPU: operations that it launches, and its time, counted on a CPU.

    python benchmarks/host_update.py [--updates 100]

ViT-Ti/16 with the branches of a GPU, forced on a CPU: its blocks and layers, but tensors of a few numbers, so that
kernels take next to no time and what is left is Python and Paddle's dispatch. One thread. "float32" is a whole update,
without waits; "half" its forward and backward pass as with ``-amp`` at O1. No CPU has kernels for that, so float64
stands for float32 there, and float32 for half precision. A product and a sum stand for the fused product with bias, of
which the sum is not counted; sums stand for fused attention, counted as one operation forward and one backward; casts
are made where Paddle's autocast makes them. Operations are what Paddle's profiler sees, with gradients.

"captured" is "float32" with TRAIN.CAPTURE. Its graph launches nothing: what is left is what the host does around it.
On a GPU one launch of the graph is added.

With Triton, "fused" is "half" with GPU_KERNELS. The device's call is an empty function there: Triton's Python around it
and the call itself, 1 to 3 microseconds of each launch, are not in the time. A product of two vectors stands for the
operation that computes the gradient of a weight in float32.

All cases take turns, and times are CPU seconds of this process: the fastest update of each, and the median of all turns
for the ratio of "fused" to "half". Paddle 2.6 for GPUs cannot count operations on a machine without a driver.
"""

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import rounds
from smallest import sized

MODEL = (
    "MODEL.EMBED_DIM 16 MODEL.NUM_HEADS 2 MODEL.NUM_CLASSES 10 MODEL.DROPOUT 0.0 DATA.IMAGE_SIZE 32 TRAIN.GRAD_CLIP 1.0"
)
IMAGES = 2
STAND_INS: Counter = Counter()  # operations of an update that a GPU would not launch
LAUNCHES: Counter = Counter()  # of Triton's kernels in an update
NO_LAUNCH = {"empty", "reshape", "reshape_grad"}  # operations that launch nothing on a GPU


def build(dtype: str, is_fused: bool = False, captures: bool = False) -> tuple[Callable[[], Any], Callable[[], Any]]:
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
    if is_fused:
        from paddlevit_dist.extensions.gpu_kernels.layers import fuse, list_kernels

        fuse(model, list_kernels(model))
    linear = [layer for layer in model.sublayers() if isinstance(layer, paddle.nn.Linear)]
    halves = HalfWeights([each for layer in linear for each in (layer.weight, layer.bias)], paddle.float32)
    optimizer = build_optimizer(values.TRAIN.OPTIMIZER, model, None, 0.05)
    precision = TrainingPrecision(False)
    sizes: dict[str, Any] = {"samples_per_update": IMAGES, "accumulation_steps": 1, "gradient_clip": 1.0}
    step = TrainStep(task, model, optimizer, precision, seed=0, on_host=False, captures=captures, **sizes)
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    batch = {"images": paddle.to_tensor(pixels), "labels": paddle.to_tensor(np.arange(IMAGES))}
    position = StepPosition(1, 0, 1000)

    def passes() -> None:
        # Fused blocks cast their weights themselves.
        with contextlib.nullcontext() if is_fused else halves.in_use():
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

    def norm(layer: Any, x: Any) -> Any:  # float64 has several operations
        return paddle._C_ops.layer_norm(x, layer.weight, layer.bias, layer._epsilon, len(x.shape) - 1)

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
                (layers.LayerNorm, "forward", norm),
                (paddle.nn.functional, "scaled_dot_product_attention", attention_stand_in),
            ]
            for owner, name, stand_in in stand_ins:
                stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


class EmptyGraph:
    """Has the methods of Paddle's graph, and launches nothing."""

    def capture_begin(self) -> None:
        """Begin a capture."""

    def capture_end(self) -> None:
        """End it."""

    def replay(self) -> None:
        """Launch what was captured."""


@contextlib.contextmanager
def graph_stubbed() -> Iterator[None]:
    """Capture passes by a graph that launches nothing, without a comparison, inside the block."""
    from paddlevit_dist.core.engine import captured_passes
    from paddlevit_dist.core.runtime import device_graph

    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            (device_graph, "_create", EmptyGraph),
            (device_graph, "reason_against", lambda: ""),
            (captured_passes, "_measure_difference", lambda expected, found: 0.0),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


@contextlib.contextmanager
def kernels_stubbed() -> Iterator[None]:
    """Launch the fused kernels with an empty function as the device's call inside the block."""
    import paddle

    from paddlevit_dist.extensions.gpu_kernels import block, functions, layers, prepared, weight_gradients

    def name_dtype(tensor: Any) -> str:  # see the top of this file
        return "float32" if tensor.element_size() == 8 else "bfloat16"

    def count(*_: Any) -> None:
        LAUNCHES["all"] += 1

    def start(launch: Any, addresses: Any) -> None:
        launch._run = count

    def weight_gradient(x: Any, gradient: Any, *_: Any) -> tuple[Any, None]:
        shape = x.shape[1], gradient.shape[1]
        if shape not in vectors:
            vectors[shape] = [paddle.ones(size, "float64") for size in ([shape[0], 1], [1, shape[1]])]
        return paddle._C_ops.matmul(*vectors[shape], False, False), None

    vectors: dict[tuple[int, int], list[Any]] = {}
    dtypes = {"float32": paddle.float64, "bfloat16": paddle.float32, "int32": paddle.int32}
    driver = SimpleNamespace(active=SimpleNamespace(get_current_stream=lambda device: 0))
    stand_ins: list[tuple[Any, str, Any]] = [
        *((module, "name_dtype", name_dtype) for module in (functions, block)),
        *((module, "FLOATS", {paddle.float32.value, paddle.float64.value}) for module in (functions, layers)),
        (layers, "_is_on_device", lambda tensor: True),
        (prepared.PreparedLaunch, "_start_by_triton", start),
        (prepared, "driver", driver),
        (weight_gradients, "is_right", lambda *arguments: True),
        (paddle._C_ops, "fused_linear_param_grad_add", weight_gradient),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in stand_ins:
            stack.enter_context(mock.patch.object(owner, name, stand_in, create=True))
        stack.enter_context(mock.patch.dict(functions.DTYPES, dtypes))
        stack.enter_context(
            mock.patch.dict(functions._NAMES, {paddle.float64.value: "float32", paddle.float32.value: "bfloat16"})
        )
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


class Case:
    """An update, or its passes, with the branches of a GPU."""

    def __init__(self, name: str) -> None:
        self.name, self.is_half, self.is_fused = name, name in ("half", "fused"), name == "fused"
        self.captures = name == "captured"
        whole, passes = build("float64" if self.is_half else "float32", self.is_fused, self.captures)
        self._update = passes if self.is_half else whole
        self.seconds: list[float] = []

    @contextlib.contextmanager
    def _forced(self) -> Iterator[None]:
        stub = kernels_stubbed() if self.is_fused else graph_stubbed() if self.captures else contextlib.nullcontext()
        with on_gpu(self.is_half), stub:
            yield

    def count(self) -> tuple[Counter, Counter]:
        """Return the operations of an update, if Paddle can count them, and the launches of Triton, by name."""
        with self._forced():
            for _ in range(3):
                self._update()
            LAUNCHES.clear()
            try:
                return count_operations(self._update), Counter(LAUNCHES)
            except OSError:  # of Paddle 2.6 for GPUs, which wants a driver
                LAUNCHES.clear()
                self._update()
                return Counter(), Counter(LAUNCHES)

    def time(self) -> None:
        """Note the host's time of an update, the second in a row."""
        with self._forced():
            self._update()
            started = time.process_time()
            self._update()
            self.seconds.append(time.process_time() - started)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=sized(100, 2))
    options = parser.parse_args(arguments)
    # One thread, views as on a GPU, and Paddle's layers instead of those for CPUs.
    os.environ.update(OMP_NUM_THREADS="1", FLAGS_use_stride_kernel="1", PADDLEVIT_DIST_PLAIN_LAYERS="1")
    rounds.print_machine()
    result: dict[str, float] = {}
    names = ["float32", "captured", "half", *(["fused"] if importlib.util.find_spec("triton") else [])]
    cases = [Case(name) for name in names]
    counts = [case.count() for case in cases]
    for _ in range(options.updates):
        for case in cases:
            case.time()
    for case, (operations, launches) in zip(cases, counts):
        milliseconds = 1e3 * min(case.seconds)
        launched = sum(number for name, number in operations.items() if name not in NO_LAUNCH)
        result[f"{case.name} ms"] = milliseconds
        if operations:
            result.update({f"{case.name} operations": operations.total(), f"{case.name} launching": launched})
        if launches:
            result[f"{case.name} launches of Triton"] = launches.total()
        most = ", ".join(f"{operation} {number}" for operation, number in operations.most_common(12))
        of_triton = f" and {launches.total()} launches of Triton" if launches else ""
        text = f"{operations.total() or '?'} operations, {launched or '?'} of which launch{of_triton}"
        print(f"{case.name}: {text}, {milliseconds:.2f} ms of the host; {most}", flush=True)
    medians = {case.name: statistics.median(case.seconds) for case in cases}
    result["captured / float32"] = medians["captured"] / medians["float32"]
    print(f"host time of captured / float32, medians of {options.updates} turns: {result['captured / float32']:.3f}")
    if "fused" in medians:
        result["fused / half"] = medians["fused"] / medians["half"]
        print(f"host time of fused / half, medians of {options.updates} turns: {result['fused / half']:.3f}")
    rounds.print_result(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
