"""What the environment of a tuned run is worth on this processor, on one thread.

    python benchmarks/cpu_tuning.py

The variables count only from a process's birth, so each contender is a process of its own that stays for all rounds
and answers one request at a time: one training step of ViT-Ti/16 at 224 pixels with 8 images, or a matrix product.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import children
import rounds
import training_updates
from contenders import ProcessGroup, serve
from rounds import Spread
from smallest import sized

from paddlevit_dist.core.launch.tuning import forget_kernels

ROUNDS = sized(9, 1)
WARM_UP_ROUNDS = sized(3, 0)
PRODUCTS = sized(20, 1)  # of one turn
BATCH_SIZE = sized(8, 1)

STEP, FAULTS, SIZES = "step", "page faults", sized((512, 1024), (64,))
PLAIN, TUNED = "plain", "tuned"
MALLOC_ONLY, KERNELS_ONLY = "malloc only", "MKL only"


def environments() -> dict[str, dict[str, str]]:
    """Each contender's environment: with all, none or one part of what a tuned run adds; always one thread."""
    plain = {**children.tuned_environment(1, tuned=False), "FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1"}
    added = {k: v for k, v in children.tuned_environment(1).items() if k.startswith(("MKL_", "MALLOC_"))}
    malloc = {k: v for k, v in added.items() if k.startswith("MALLOC_")}
    kernels = {k: v for k, v in added.items() if k.startswith("MKL_")}
    return {
        PLAIN: plain,
        MALLOC_ONLY: {**plain, **malloc},
        KERNELS_ONLY: {**plain, **kernels},
        TUNED: {**plain, **added},
    }


def make_step() -> Callable[[], float]:
    """A training step that returns its seconds."""
    import paddle

    from paddlevit_dist import create_model

    paddle.seed(0)
    model = create_model("vit_tiny_patch16_224")
    return training_updates.get_timed_step(model, model.parameters(), BATCH_SIZE)


def page_faults() -> int:
    """Pages that the kernel had to give to this process since its start, each of them zeroed."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def make_product(size: int) -> Any:
    """A product that returns its seconds, and its largest error over the largest entry of the float64 product."""
    import numpy as np
    import paddle

    generator = np.random.default_rng(size)
    left, right = (generator.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    exact = left.astype(np.float64) @ right.astype(np.float64)
    a, b = paddle.to_tensor(left), paddle.to_tensor(right)
    error = float(np.abs(paddle.matmul(a, b).numpy() - exact).max() / np.abs(exact).max())

    def product() -> float:
        started = time.perf_counter()
        for _ in range(PRODUCTS):
            paddle.matmul(a, b)
        return (time.perf_counter() - started) / PRODUCTS

    return product, error


def answer_requests() -> None:
    """A contender, which says first by how much its products are wrong."""
    forget_kernels()  # what importing the package has chosen: only a contender's own environment counts
    products = {str(size): make_product(size) for size in SIZES}
    requests = {STEP: make_step(), FAULTS: page_faults, **{name: product for name, (product, _) in products.items()}}
    serve(lambda name: requests[name](), {name: error for name, (_, error) in products.items()})


def show(
    seconds: dict[str, dict[str, list[float]]], errors: dict[str, dict[str, float]], faults: dict[str, float]
) -> dict[str, float]:
    """Print the tables and return how many times as fast the tuned process is."""
    result = {}
    step = seconds[STEP]
    rows = [
        [name, Spread.of(values).text(1e3, 1), rounds.ratios(step[PLAIN], values).text(), f"{faults[name]:,.0f}"]
        for name, values in step.items()
    ]
    title = f"ViT-Ti/16 training step, {BATCH_SIZE} images, one thread, median of {ROUNDS} rounds [lowest, highest]"
    rounds.print_table(title, ["environment", "ms", "times as fast as plain", "page faults per step"], rows)
    for name, key in ((TUNED, "step_speedup"), (MALLOC_ONLY, "malloc_only"), (KERNELS_ONLY, "mkl_only")):
        result[key] = rounds.ratios(step[PLAIN], step[name]).median
    for size in SIZES:
        taken = seconds[str(size)]
        rows = []
        for name, values in taken.items():
            speed = Spread.of([2 * size**3 / value / 1e9 for value in values])
            ratio = rounds.ratios(taken[PLAIN], values)
            rows.append([name, speed.text(digits=0), ratio.text(), f"{errors[name][str(size)]:.1e}"])
            if name in (PLAIN, TUNED):
                result[f"product_{size}_{name}_gigaflops"] = speed.median
        header = ["environment", "GFLOP/s", "times as fast as plain", "error against float64"]
        rounds.print_table(f"float32 product {size} x {size}, one thread, {ROUNDS} rounds", header, rows)
        result[f"product_{size}_speedup"] = rounds.ratios(taken[PLAIN], taken[TUNED]).median
    return result


def measure(groups: dict[str, ProcessGroup]) -> dict[str, float]:
    """Question all contenders, print the tables, return the ratios."""
    errors = {name: group.wait_until_ready()[0] for name, group in groups.items()}

    def ask(name: str, request: str) -> float:
        return groups[name].ask(name=request)[0]

    def turns(request: str) -> dict[str, list[float]]:
        return rounds.interleave(
            {name: lambda name=name: ask(name, request) for name in groups}, ROUNDS, WARM_UP_ROUNDS
        )

    before = {name: ask(name, FAULTS) for name in groups}
    seconds = {STEP: turns(STEP)}
    steps = WARM_UP_ROUNDS + ROUNDS
    faults = {name: (ask(name, FAULTS) - before[name]) / steps for name in groups}
    seconds.update({str(size): turns(str(size)) for size in SIZES})
    return show(seconds, errors, faults)


def main() -> None:
    if "--contender" in sys.argv:
        answer_requests()
        return
    rounds.print_machine()
    variables = sorted(set(environments()[TUNED].items()) - set(environments()[PLAIN].items()))
    print("tuned adds: " + " ".join(f"{name}={value}" for name, value in variables))
    groups = {}
    try:
        for name, environment in environments().items():
            groups[name] = ProcessGroup([sys.executable, __file__, "--contender"], [environment])
        result = measure(groups)
    finally:
        for group in groups.values():
            group.end()
    rounds.print_result(result)


if __name__ == "__main__":
    main()
